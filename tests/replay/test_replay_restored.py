"""A buffer that was exported and restored goes on as the first one."""

import json

import numpy as np
import pytest
from tests.replay import assert_equal_batches, numbered, play, small


def through_files(pieces, state, directory):
    """What pieces and state are after a trip to disk without pickle, and through JSON."""
    loaded = []
    for number, piece in enumerate(pieces):
        np.savez(directory / f"{number}.npz", **piece)
        with np.load(directory / f"{number}.npz", allow_pickle=False) as file:
            loaded.append(dict(file))
    return loaded, json.loads(json.dumps(state))


@pytest.mark.parametrize("storage", ["ram", "disk"])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 9, 39, 40, 41, 95, 333])
@pytest.mark.parametrize("stop", [0.0, 0.3])
def test_a_restored_buffer_goes_on_as_the_first(count, stop, storage, tmp_path):
    shape, rng = (2, 6, 5), np.random.default_rng(count)
    original = small(shape=shape, shift=4)
    pieces, saved = [], 0
    while original.written < count:  # a checkpoint every 15 records, each with the new ones only
        room = min(15, count - original.written)
        original.cut()
        play([original], rng, room, shape, stop, first=original.written)
        if original.written > 3:
            original.sample(3)
        pieces.append(original.export(saved, original.written))
        saved = original.written
    restored = small(shape=shape, shift=4, seed=99, storage=storage, directory=tmp_path)
    play([restored], rng, 13, shape)  # what was there before must not matter
    loaded, state = through_files(pieces, original.state(), tmp_path)
    restored.restore(iter(loaded), state)
    assert restored.state() == original.state() and len(restored) == len(original)
    for _ in range(3):
        if len(original):
            assert_equal_batches(original.sample(20), restored.sample(20))
        for buffer in (original, restored):
            if not buffer.running:
                buffer.begin(numbered(1, shape))
            for number in range(25):
                buffer.add([1, 1], number, 1, numbered(number, shape), last=number == 24)
        assert_equal_batches(original.gather(np.arange(20)), restored.gather(np.arange(20)))


def test_records_outside_the_ring_or_after_the_state_are_passed_over():
    original, rng = small(), np.random.default_rng(5)
    play([original], rng, 30)
    early = original.export(0, 30)
    original.cut()
    play([original], rng, 45, first=30)
    state, late = original.state(), original.export(30, 75)
    assert int(late["start"]) == 35 and len(late["age"]) == 40
    wanted = original.sample(30)
    original.cut()
    play([original], rng, 5, first=75)
    pieces = [early, late, original.export(70, 80)]
    restored = small()
    restored.restore(pieces, state)
    assert restored.written == 75
    assert_equal_batches(restored.sample(30), wanted)


def test_export_gives_copies_of_what_is_still_there():
    replay = small(capacity=10)
    play([replay], np.random.default_rng(0), 25, stop=0.0)
    piece = replay.export(0, 25)
    assert int(piece["start"]) == 15
    np.testing.assert_array_equal(piece["age"], np.arange(15, 25))
    np.testing.assert_array_equal(piece["frame"], [numbered(n) for n in range(15, 25)])
    piece["frame"][:] = 0
    np.testing.assert_array_equal(replay.export(20, 21)["frame"][0], numbered(20))
    gone = replay.export(2, 4)
    assert gone["age"].shape == (0,) and gone["frame"].shape == (0, 2, 2, 3)


def test_missing_records_are_refused_and_leave_the_buffer_empty():
    original = small()
    play([original], np.random.default_rng(0), 30)
    restored = small()
    pieces = [original.export(0, 10), original.export(12, 30)]
    with pytest.raises(ValueError, match=r"records 10 to 29 are missing from the pieces; give all"):
        restored.restore(pieces, original.state())
    assert len(restored) == restored.written == 0 and not restored.running


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"frame": np.zeros((9, 2, 2), np.uint8)}, r"frame must be uint8 of shape \(9, 2, 2, 3\)"),
        ({"reward": np.zeros(9)}, r"reward must be float32 of shape \(9,\), got float64 of shape"),
        ({"action": None}, r"action must be float32 of shape \(9, 2\), got none; give what export"),
    ],
)
def test_a_piece_of_another_kind_is_refused(change, message):
    replay = small()
    play([replay], np.random.default_rng(0), 9)
    piece = replay.export(0, 9) | change
    with pytest.raises(ValueError, match=message):
        small().restore([piece], replay.state())


def test_a_piece_without_a_start_is_refused():
    replay = small()
    play([replay], np.random.default_rng(0), 9)
    piece = replay.export(0, 9)
    del piece["start"]
    with pytest.raises(ValueError, match="a piece must have its start; give what export returned"):
        small().restore([piece], replay.state())


def test_a_state_of_other_settings_is_refused():
    message = r"the saved replay has stack 3, not 2; n_step 3, not 1; use the settings"
    with pytest.raises(ValueError, match=message):
        small(stack=2, n_step=1).restore([], small().state())
    with pytest.raises(ValueError, match="state must be of format 1, got None"):
        small().restore([], {})


@pytest.mark.parametrize("bounds", [(-1, 3), (4, 3), (0, 31)])
def test_export_of_what_was_never_written_is_refused(bounds):
    replay = small()
    play([replay], np.random.default_rng(0), 30)
    with pytest.raises(ValueError, match=r"export needs 0 <= start|start must be"):
        replay.export(*bounds)
