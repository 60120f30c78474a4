"""Scores of runs over training and at a budget."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.analysis.runs import write_lines, write_run

from revbis.analysis.scores import (
    Curve,
    align_curves,
    curve,
    group_scores,
    status_curve,
)
from revbis.analysis.study import read_study


def curve_of(points: dict[int, float]) -> Curve:
    return Curve(np.array(list(points)), np.array(list(points.values())))


def test_common_frames_are_never_filled_in() -> None:
    first = curve_of({0: 1.0, 10: 2.0, 20: 3.0, 30: 4.0})
    second = curve_of({0: 5.0, 20: 6.0, 25: 7.0})
    frames, scores = align_curves([first, second])
    assert frames.tolist() == [0, 20] and scores.tolist() == [[1.0, 3.0], [5.0, 6.0]]
    assert align_curves([first, second], budget=19)[0].tolist() == [0]
    assert align_curves([first, second], budget=20)[0].tolist() == [0, 20]
    assert align_curves([first, curve_of({5: 1.0})])[1].shape == (2, 0)
    with pytest.raises(ValueError, match="no curve"):
        align_curves([])


def test_curve_of_a_run_that_is_late_by_less_than_an_action(tmp_path: Path) -> None:
    write_run(
        tmp_path,
        {0: 1.0, 101: 2.0, 203: 3.0, 304: 9.0, 351: 4.0},
        frames=350,
        eval_every=100,
        action_repeat=4,
    )
    result = curve(read_study([tmp_path]).runs[0])
    assert result.frames.tolist() == [0, 100, 200, 304, 350]
    assert result.scores.tolist() == [1.0, 2.0, 3.0, 9.0, 4.0]


def test_curve_is_in_order_and_has_a_frame_once(tmp_path: Path) -> None:
    write_run(tmp_path, {20: 3.0, 0: 1.0, 11: 5.0, 10: 2.0}, action_repeat=2)
    result = curve(read_study([tmp_path]).runs[0])
    assert result.frames.tolist() == [0, 10, 20] and result.scores.tolist() == [1.0, 2.0, 3.0]


def test_curve_of_meta_world_is_success(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [0.0, 0.3, 0.9], task="metaworld:hammer")
    with open(folder / "eval.jsonl", "a") as file:
        file.write('{"frames": 30, "mean_return": 7.0, "success_any": [null]}\n')
    result = curve(read_study([tmp_path]).runs[0])
    assert result.scores == pytest.approx([0.0, 0.3, 0.9])


def test_status_curve(tmp_path: Path) -> None:
    steps: dict[int, Any] = {10: 0.5, 20: 0.25, 30: "nan", 40: None}
    folder = write_run(tmp_path, [0.0], c=steps, action_repeat=4)
    result = status_curve(read_study([tmp_path]).runs[0], "c")
    assert result.frames.tolist() == [40, 80] and result.scores.tolist() == [0.5, 0.25]
    write_lines(folder / "train.jsonl", [{"frames": 4, "agent_steps": 1}])
    assert len(status_curve(read_study([tmp_path]).runs[0], "c").frames) == 0
    lines = [
        {"frames": 0, "mean_return": 1.0, "status": {"c": 0.5}},
        {"frames": 10, "mean_return": 1.0, "c": 0.75},
        {"frames": 20, "mean_return": 1.0, "status": {"c": "nan"}},
        {"frames": 30, "mean_return": 1.0, "status": {}},
    ]
    write_lines(folder / "eval.jsonl", lines)
    result = status_curve(read_study([tmp_path]).runs[0], "c")
    assert result.frames.tolist() == [0, 10] and result.scores.tolist() == [0.5, 0.75]


def test_group_scores(tmp_path: Path) -> None:
    write_run(tmp_path, [0.0, 8.0, 4.0], seed=1)
    write_run(tmp_path, [2.0, 6.0, 9.0], seed=2)
    write_run(tmp_path, [1.0, 50.0], seed=3, frames=20)
    write_run(tmp_path, [], seed=4, frames=20)
    (group,) = read_study([tmp_path]).groups
    final = group_scores(group, "final", 20)
    assert final is not None
    assert (final.seeds, final.values.tolist(), final.frames, final.short) == (
        (1, 2),
        [4.0, 9.0],
        20,
        (3, 4),
    )
    best = group_scores(group, "best", 20)
    assert best is not None and best.values.tolist() == [8.0, 9.0]
    # (0 + 8)/2 and (8 + 4)/2, mean 5; (2 + 6)/2 and (6 + 9)/2, mean 5.75.
    area = group_scores(group, "area", 20)
    assert area is not None and area.values.tolist() == [5.0, 5.75]
    early = group_scores(group, "best", 10)
    assert early is not None and early.short == (4,)
    assert early.values.tolist() == [8.0, 6.0, 50.0] and early.frames == 10
    between = group_scores(group, "final", 15)
    assert between is not None and (between.frames, between.short) == (10, (3, 4))
    nobody = group_scores(group, "final", 500)
    assert nobody is not None and nobody.short == (1, 2, 3, 4)
    assert (nobody.seeds, nobody.frames, nobody.values.tolist()) == (
        (1, 2, 3),
        10,
        [8.0, 6.0, 50.0],
    )


def test_group_scores_without_evaluations(tmp_path: Path) -> None:
    write_run(tmp_path, [], frames=20)
    write_run(tmp_path, {10: 1.0}, method="mico", frames=20)
    nothing, late = read_study([tmp_path]).groups
    assert group_scores(nothing, "final", 20) is None
    assert group_scores(late, "final", 5) is None


def test_seeds_agree_after_one_was_resumed_with_another_interval(tmp_path: Path) -> None:
    settings = {"frames": 20_000, "action_repeat": 4}
    usual = {0: 0.0, 5_001: 1.0, 10_002: 2.0, 20_003: 4.0}
    write_run(tmp_path, usual, seed=1, eval_every=5_000, **settings)
    changed = {0: 0.0, 2_503: 9.0, 5_003: 3.0, 10_000: 6.0, 20_001: 8.0}
    write_run(tmp_path, changed, seed=2, eval_every=10_000, **settings)
    (group,) = read_study([tmp_path]).groups
    frames, scores = align_curves([curve(run) for run in group.runs])
    assert frames.tolist() == [0, 5_000, 10_000, 20_000]
    assert scores.mean(axis=0).tolist() == [0.0, 2.0, 4.0, 6.0]
    scores = group_scores(group, "final", 20_000)
    assert scores is not None and scores.values.tolist() == [4.0, 8.0] and scores.short == ()


def test_the_untrained_agent_has_no_best_score(tmp_path: Path) -> None:
    write_run(tmp_path, {0: 9.0, 10: 2.0, 20: 3.0}, frames=20)
    (group,) = read_study([tmp_path]).groups
    best = group_scores(group, "best", 20)
    assert best is not None and best.values.tolist() == [3.0]
    assert group_scores(group, "best", 5) is None
