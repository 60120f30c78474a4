"""The paper's numbers: whole, and never shown without their scale."""

import math
from pathlib import Path

import pytest
from tests.analysis.runs import write_run

from revbis.agents import methods
from revbis.analysis import paper
from revbis.analysis.study import read_study
from revbis.runs.presets import preset_config

# The paper's own marks, read off its table: best and second of each row.
MARKS = {
    "acrobot_swingup": ("mico-rev", "simsr-rev"),
    "cheetah_run": ("simsr-rev", "taco"),
    "walker_run": ("dreamerv3", "taco"),
    "reach_duplo": ("taco", "mico-rev"),
    "reacher_hard": ("mico-rev", "taco"),
    "finger_turn_hard": ("dreamerv3", "taco"),
    "quadruped_walk": ("taco", "simsr-rev"),
    "quadruped_run": ("taco", "simsr-rev"),
    "hopper_hop": ("dreamerv3", "mico-rev"),
}


def test_table1_is_whole() -> None:
    numbers = paper.table1()
    assert len(numbers) == 72 and len({(one.task, one.system) for one in numbers}) == 72
    assert {one.task for one in numbers} == {f"dmc:{name}" for name in MARKS}
    assert {one.system for one in numbers} == set(paper.SYSTEMS)
    own = {"mico-rev", "simsr-rev", "mico", "simsr"}
    assert all(one.seeds == (3 if one.system in own else 6) for one in numbers)
    assert sum(one.mean for one in numbers) == 31_090 and sum(one.spread for one in numbers) == 4284
    assert own | {"drqv2", "taco", "tdmpc"} <= set(methods())  # measured and reported: one name


@pytest.mark.parametrize("task", MARKS)
def test_order_is_the_papers(task: str) -> None:
    numbers = paper.reported(f"dmc:{task}")
    order = sorted(numbers, key=lambda system: -numbers[system].mean)
    assert tuple(order[:2]) == MARKS[task]


def test_reported_by_task() -> None:
    assert paper.reported("dmc:hopper_hop")["simsr"] == ("dmc:hopper_hop", "simsr", 79, 136, 3)
    assert list(paper.reported("dmc:hopper_hop")) == list(paper.SYSTEMS)
    assert paper.reported("dmc:cartpole_balance") == {} and paper.reported("hopper_hop") == {}


def test_what_the_spread_can_be() -> None:
    # Over three returns of at least 0 spreads are largest when one has it all.
    mean = 79.5  # what still rounds to 79
    returns = (0.0, 0.0, 3 * mean)
    squares = sum((one - mean) ** 2 for one in returns)
    assert math.sqrt(squares / 2 / 3) < 136 and math.sqrt(squares / 3) < 136
    assert math.sqrt(squares / 2) > 136
    assert "79 ± 136" in paper.SPREAD


def test_scale_gaps() -> None:
    config = preset_config("paper", "dmc:cheetah_run")
    assert paper.scale_gaps(config, 1_000_000) == []
    assert paper.scale_gaps(config, 500_000) == ["frames 500,000 (1,000,000)"]
    malformed = config.with_settings(
        quality="fast", hidden=64, seed=7, out=Path("x"), checkpoint_every=9
    )
    assert paper.scale_gaps(malformed, 1_000_000) == ["quality fast (full)", "hidden 64 (1024)"]
    other = config.with_settings(distractor="noise", observation="state", state_noise=24)
    gaps = ["observation state (pixels)", "distractor noise (None)", "state_noise 24 (0)"]
    assert paper.scale_gaps(other, 1_000_000) == gaps
    assert len(paper.scale_gaps(preset_config("cpu", "dmc:cheetah_run"), 60_000)) > 10
    assert paper.scale_gaps(preset_config("paper", "metaworld:hammer"), 1_000_000) == []
    taco = preset_config("paper", "dmc:cheetah_run", "taco")
    assert paper.scale_gaps(taco, 1_000_000) == []
    gaps = ["action_steps 1 (3)", "reward_loss False (True)"]
    malformed = taco.with_settings(action_steps=1, reward_loss=False)
    assert paper.scale_gaps(malformed, 1_000_000) == gaps
    planning = preset_config("paper", "dmc:cheetah_run", "tdmpc")
    assert paper.scale_gaps(planning, 1_000_000) == []
    assert paper.scale_gaps(planning.with_settings(samples=99), 1_000_000) == ["samples 99 (512)"]


def test_scale_notes(tmp_path: Path) -> None:
    for name, preset in (("full", "paper"), ("small", "cpu")):
        settings = preset_config(preset, "dmc:cheetah_run").as_dict()
        kept = {key: settings[key] for key in ("frames", "eval_every", "action_repeat")}
        method = "mico" if preset == "paper" else "drqv2"
        write_run(tmp_path / name, [1.0], method=method, preset=preset, **kept)
    at = {"dmc:cheetah_run": 1_000_000}
    headline, notes = paper.scale_notes(read_study([tmp_path / "full"]), at)
    assert headline == "Measured and reported scores are at the same scale."
    assert notes[0].startswith(f"Reported: {paper.SOURCE}, 1,000,000 frames")
    assert notes[1:] == ["Measured: the paper's settings and budget."]
    headline, notes = paper.scale_notes(read_study([tmp_path]), at)
    assert headline == "Measured scores are NOT at the paper's scale: see the notes."
    assert notes[1].startswith("Measured (drqv2 on dmc:cheetah_run): not at the paper's scale")
    assert "pixels 48 (84)" in notes[1]
    assert notes[2] == "Measured (mico on dmc:cheetah_run): the paper's settings and budget."
    write_run(tmp_path / "else", [1.0], task="dmc:cartpole_balance")
    headline, notes = paper.scale_notes(
        read_study([tmp_path / "else"]), {"dmc:cartpole_balance": 1}
    )
    assert headline == "" and notes == [f"None of these tasks is in {paper.SOURCE}."]
