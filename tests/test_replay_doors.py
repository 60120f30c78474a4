"""Wrong types at the replay's doors are refused in words, and the buffer stays as it was."""

from typing import Any

import numpy as np
import pytest

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
