"""Wrong types at the replay's doors are refused in words, and the buffer stays as it was."""

import math
from typing import Any

import numpy as np
import pytest
from tests.replay import numbered, play, small

from revbis.replay import Replay


@pytest.fixture
def replay() -> Replay:
    replay = Replay(20, (3,), 2, stack=1, n_step=1)
    replay.begin(np.zeros(3, np.float32))
    for step in range(5):
        replay.add([0.0, 0.0], 1.0, 1.0, np.zeros(3, np.float32), last=step == 4)
    return replay


@pytest.mark.parametrize("shape", [0, None, "abc", 1.5, (3, 16), (0,), ("x",)])
def test_shapes(shape: Any) -> None:
    with pytest.raises(ValueError, match="observation_shape"):
        Replay(20, shape, 2)


@pytest.mark.parametrize("action", [[1j, 0], [True, False], ["0", "0"], [[0.0], [0.0, 1.0]], None])
def test_actions_are_real_numbers(replay: Replay, action: Any) -> None:
    replay.begin(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match=r"^action must"):
        replay.add(action, 1.0, 1.0, np.zeros(3, np.float32), last=False)
    assert replay.written == 7


@pytest.mark.parametrize("frame", [None, "abc", [[0.0], [0.0, 1.0]], [1j, 0, 0], object()])
def test_frames_are_real_numbers(replay: Replay, frame: Any) -> None:
    with pytest.raises(ValueError, match=r"^frame must (hold real numbers|be an array)"):
        replay.begin(frame)
    assert replay.written == 6


@pytest.mark.parametrize("value", [0, "no", None, np.ones(2)])
def test_flags_are_true_or_false(replay: Replay, value: Any) -> None:
    with pytest.raises(ValueError, match="one_step must be True or False, got"):
        Replay(20, (3,), 2, one_step=value)
    replay.begin(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="last must be True or False, got"):
        replay.add([0.0, 0.0], 1.0, 1.0, np.zeros(3, np.float32), last=value)
    assert replay.written == 7


@pytest.mark.parametrize("value", [0, -1, 1.5, "x", None, 10**12])
def test_batch_sizes(replay: Replay, value: Any) -> None:
    with pytest.raises(ValueError, match="batch_size must be"):
        replay.sample(value)


@pytest.mark.parametrize("value", [0, [0.5], ["x"], None, [[0]], [True], [[0], [0, 1]]])
def test_positions(replay: Replay, value: Any) -> None:
    with pytest.raises(ValueError, match="positions must"):
        replay.gather(value)
    with pytest.raises(IndexError, match="positions must be in"):
        replay.gather([5])  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["x", None, 1.5, -1, [3]])
def test_parts_to_export(replay: Replay, value: Any) -> None:
    with pytest.raises(ValueError, match="start must be"):
        replay.export(value, 3)
    with pytest.raises(ValueError, match="stop must be"):
        replay.export(0, value)


def test_states_and_pieces(replay: Replay) -> None:
    state, piece = replay.state(), replay.export(0, replay.written)
    for wrong in (None, 3, "x", [], {}, {"format": 1}):
        with pytest.raises(ValueError, match="the replay's state"):
            replay.restore([piece], wrong)  # type: ignore[arg-type]
    for key in ("settings", "running", "generator", "written"):
        for changed in ({k: v for k, v in state.items() if k != key}, state | {key: "x"}):
            with pytest.raises(ValueError, match="state"):
                replay.restore([piece], changed)
    with pytest.raises(ValueError, match="generator cannot be restored"):
        replay.restore([piece], state | {"generator": {"bit_generator": "PCG64"}})
    for pieces in (None, 3):
        with pytest.raises(ValueError, match="pieces must be what export gave"):
            replay.restore(pieces, state)  # type: ignore[arg-type]
    for wrong in (None, "x", {}, piece | {"start": np.array(0j)}, piece | {"start": np.array("x")}):
        with pytest.raises(ValueError, match="a piece must have its start"):
            replay.restore([wrong], state)  # type: ignore[list-item]
    replay.restore([piece], state)
    assert len(replay) == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"capacity": 6}, r"capacity must be at least stack \+ n_step \+ 1 = 7 .*, got 6; use a l"),
        ({"capacity": 0}, "capacity must be at least 1, got 0"),
        ({"capacity": 10.5}, "capacity must be a whole number, got 10.5"),
        ({"observation_shape": (84, 84)}, r"must be \(C, H, W\) for pixels or \(D,\) for vectors"),
        ({"observation_shape": (0,)}, "observation_shape\\[0\\] must be at least 1, got 0"),
        ({"action_size": 0}, "action_size must be at least 1, got 0"),
        ({"stack": 0}, "stack must be at least 1, got 0"),
        ({"n_step": 0}, "n_step must be at least 1, got 0"),
        ({"discount": 1.5}, r"discount must be in \[0, 1\), got 1.5"),
        ({"shift": -1}, "shift must be at least 0, got -1"),
        ({"shift": 8}, "shift must be less than the image's side 8, got 8"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"storage": "dsik"}, "storage must be one of ram, disk, got 'dsik'; did you mean 'disk'"),
        ({"storage": "disk"}, "directory must be given with storage 'disk'"),
    ],
)
def test_a_wrong_setting_is_refused(changes, message):
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
        ({"reward": math.inf}, "reward must be a finite 32-bit number, got inf"),
        ({"reward": 1e39}, r"reward must be a finite 32-bit number, got 1e\+39"),
        ({"reward": None}, "reward must be a number, got None"),
        ({"discount": -0.1}, r"discount must be in \[0, 1\], got -0.1"),
        ({"discount": 1.1}, r"discount must be in \[0, 1\], got 1.1"),
        ({"discount": math.nan}, r"discount must be in \[0, 1\], got nan"),
        (
            {"frame": np.zeros((2, 3, 2), np.uint8)},
            r"frame must be uint8 of shape \(2, 2, 3\), got uint8 of shape \(2, 3, 2\)",
        ),
        (
            {"frame": np.zeros((2, 2, 3), np.float32)},
            r"frame must be uint8 of shape \(2, 2, 3\), got float32 of shape \(2, 2, 3\)",
        ),
    ],
)
def test_a_wrong_step_is_refused_and_changes_nothing(changes, message):
    replay = small()
    play([replay], np.random.default_rng(0), 10, stop=0.0)
    before, state = replay.export(0, 10), replay.state()
    step = {"action": [0, 0], "reward": 0.0, "discount": 1.0, "frame": numbered(0), "last": False}
    with pytest.raises(ValueError, match=message):
        replay.add(**step | changes)
    after = replay.export(0, 10)
    assert replay.state() == state and len(replay) == 7
    assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_vector_that_is_not_finite_is_refused(value):
    with pytest.raises(ValueError, match="frame must be finite, got"):
        small(shape=(2,)).begin(np.array([0, value], np.float32))


def test_a_vector_of_doubles_is_refused():
    with pytest.raises(ValueError, match=r"frame must be float32 of shape \(2,\), got float64"):
        small(shape=(2,)).begin(np.zeros(2))


def test_steps_out_of_order_are_refused():
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
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        replay.sample(0)
    with pytest.raises(IndexError, match=r"positions must be in \[0, 1\)"):
        replay.gather(np.array([1]))
    with pytest.raises(IndexError, match=r"positions must be in \[0, 1\)"):
        replay.gather(np.array([-1]))
