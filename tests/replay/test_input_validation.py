"""The border of the replay buffer: what is refused; the buffer then stays as it was."""

import math
from typing import Any

import numpy as np
import pytest
from tests.replay import numbered, play, small

from revbis.replay import Replay


@pytest.fixture
def replay() -> Replay:
    """Nine records of one episode, which is over."""
    replay = small()
    play([replay], np.random.default_rng(0), 9, stop=0.0)
    replay.cut()
    return replay


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"capacity": 6}, r"capacity must be at least stack \+ n_step \+ 1 = 7 .*, got 6; use a l"),
        ({"observation_shape": (84, 84)}, r"must be \(C, H, W\) for pixels or \(D,\) for vectors"),
        ({"observation_shape": (0,)}, r"observation_shape\[0\] must be at least 1, got 0"),
        ({"stack": 101}, "stack must be at most 100, got 101"),
        ({"n_step": 0}, "n_step must be at least 1, got 0"),
        ({"discount": 1.5}, r"discount must be in \[0, 1\), got 1.5"),
        ({"shift": 8}, "shift must be less than the image's side 8, got 8"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"one_step": 0}, "one_step must be True or False, got 0"),
        ({"storage": "disk"}, "directory must be given with storage 'disk'"),
    ],
)
def test_settings(changes: dict[str, Any], message: str) -> None:
    arguments = {"capacity": 20, "observation_shape": (1, 9, 8), "action_size": 2} | changes
    with pytest.raises(ValueError, match=message):
        Replay(**arguments)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"action": [1.0]}, r"action must have shape \(2,\), got \(1,\)"),
        ({"action": [1.0, math.nan]}, "action must be finite, but 1 of its entries are not"),
        ({"action": [1.0, 1e39]}, "action must fit in 32 bits, got"),
        ({"reward": math.nan}, "reward must be a finite 32-bit number, got nan"),
        ({"reward": 1e39}, r"reward must be a finite 32-bit number, got 1e\+39"),
        ({"discount": 1.1}, r"discount must be in \[0, 1\], got 1.1"),
        ({"last": "no"}, "last must be True or False, got 'no'"),
        (
            {"frame": np.zeros((2, 2, 3), np.float32)},
            r"frame must be uint8 of shape \(2, 2, 3\), got float32 of shape \(2, 2, 3\)",
        ),
        ({"frame": None}, "frame must hold real numbers, got None"),
    ],
)
def test_steps(changes: dict[str, Any], message: str) -> None:
    replay = small()
    play([replay], np.random.default_rng(0), 10, stop=0.0)
    before, state = replay.export(0, 10), replay.state()
    step = {"action": [0, 0], "reward": 0.0, "discount": 1.0, "frame": numbered(0), "last": False}
    with pytest.raises(ValueError, match=message):
        replay.add(**step | changes)
    after = replay.export(0, 10)
    assert replay.state() == state and len(replay) == 7
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_vectors() -> None:
    with pytest.raises(ValueError, match="frame must be finite, got"):
        small(shape=(2,)).begin(np.array([0, math.inf], np.float32))


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        ("sample", (0,), "batch_size must be at least 1"),
        *(("gather", (positions,), "positions must") for positions in (0, [0.5], [[0]])),
        ("export", (-1, 3), "start must be at least 0"),
        ("export", (0, 1.5), "stop must be a whole number"),
        ("export", (4, 3), "export needs 0 <= start"),
        ("export", (0, 10), "export needs 0 <= start"),
    ],
)
def test_calls(replay: Replay, method: str, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(replay, method)(*arguments)


@pytest.mark.parametrize("position", [8, -1])
def test_positions_outside_the_queue(replay: Replay, position: int) -> None:
    with pytest.raises(IndexError, match=r"positions must be in \[0, 8\)"):
        replay.gather(np.array([position]))


def test_calls_out_of_order() -> None:
    replay = small()
    with pytest.raises(ValueError, match="add needs a running episode; call begin with its first"):
        replay.add([0, 0], 0, 1, numbered(0), last=False)
    with pytest.raises(ValueError, match="sample needs at least one transition, but the replay "):
        replay.sample(1)
    replay.begin(numbered(0))
    with pytest.raises(ValueError, match=r"begin needs the running episode to be over; end it wit"):
        replay.begin(numbered(0))
    replay.add([0, 0], 0, 1, numbered(0), last=True)
    with pytest.raises(ValueError, match="add needs a running episode"):
        replay.add([0, 0], 0, 1, numbered(0), last=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(({key: "x"}, "state") for key in ("settings", "running", "generator", "written")),
        ({"generator": {"bit_generator": "PCG64"}}, "generator cannot be restored"),
        ({"format": None}, "state must be of format 1, got None"),
    ],
)
def test_states(replay: Replay, change: dict[str, Any], message: str) -> None:
    state, piece = replay.state(), replay.export(0, replay.written)
    (key,) = change
    without = {name: value for name, value in state.items() if name != key}
    with pytest.raises(ValueError, match=message):
        replay.restore([piece], state | change)
    with pytest.raises(ValueError, match="state"):
        replay.restore([piece], without)
    for wrong in (None, 3, "x", [], {}, {"format": 1}):
        with pytest.raises(ValueError, match="the replay's state"):
            replay.restore([piece], wrong)  # type: ignore[arg-type]
    replay.restore([piece], state)
    assert len(replay) == 8


def test_a_state_of_other_settings() -> None:
    message = r"the saved replay has stack 3, not 2; n_step 3, not 1; use the settings"
    with pytest.raises(ValueError, match=message):
        small(stack=2, n_step=1).restore([], small().state())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"frame": np.zeros((9, 2, 2), np.uint8)}, r"frame must be uint8 of shape \(9, 2, 2, 3\)"),
        ({"reward": np.zeros(9)}, r"reward must be float32 of shape \(9,\), got float64 of shape"),
        ({"action": None}, r"action must be float32 of shape \(9, 2\), got none; give what export"),
        ({"start": None}, "a piece must have its start; give what export returned"),
        ({"start": np.array("x")}, "a piece must have its start"),
    ],
)
def test_pieces(replay: Replay, change: dict[str, Any], message: str) -> None:
    state, piece = replay.state(), replay.export(0, 9)
    with pytest.raises(ValueError, match=message):
        small().restore([piece | change], state)
    for pieces in (None, 3):
        with pytest.raises(ValueError, match="pieces must be what export gave"):
            small().restore(pieces, state)
    for wrong in (None, "x", {}):
        with pytest.raises(ValueError, match="a piece must have its start"):
            small().restore([wrong], state)
