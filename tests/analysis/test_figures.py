"""Figures: what is drawn is what was measured, and the caption says how."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from tests.analysis.runs import study_of, write_run

from revbis.analysis import figures, stats
from revbis.analysis.figures import draw_offline
from revbis.analysis.study import read_study

CHEETAH, WALKER, HAMMER = "dmc:cheetah_run", "dmc:walker_run", "metaworld:hammer"
FIGURES = (figures.learning_curves, figures.ablation, figures.coefficients)


def panel(figure: Figure, title: str) -> Axes:
    (match,) = [axes for axes in figure.axes if axes.get_title() == title]
    return match


def lines(axes: Axes) -> list[tuple[list[float], list[float]]]:
    """Frames and scores of every curve with points."""
    points = [(line.get_xdata(), line.get_ydata()) for line in axes.lines]
    return [(np.array(x).tolist(), np.array(y).tolist()) for x, y in points if len(x)]


def band(axes: Axes) -> Any:
    """Corners of the only shaded area."""
    (area,) = axes.collections
    (path,) = area.get_paths()
    return path.vertices


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for one in figure.legends for text in one.get_texts()]


def test_learning_curve_is_the_smoothed_mean_with_its_error(tmp_path: Path) -> None:
    write_run(tmp_path, [0.0, 10.0, 20.0], seed=1)
    write_run(tmp_path, [4.0, 20.0, 60.0], seed=2)
    study = read_study([tmp_path])
    figure = figures.learning_curves(study)
    ((frames, means),) = lines(panel(figure, "cheetah_run"))
    # Means 2, 15, 40 with α = 0.2: 2, 4.6, 11.68.
    assert frames == [0, 10, 20] and means == pytest.approx([2.0, 4.6, 11.68])
    # Seeds smoothed: 0, 2, 5.6 and 4, 7.2, 17.76; half of their gap is the standard error of two.
    corners = band(panel(figure, "cheetah_run"))
    at_the_end = sorted({round(y, 9) for x, y in corners if x == 20})
    assert at_the_end == pytest.approx([5.6, 17.76])
    caption = str(figure.get_label())
    for words in ("n = 2", "one standard error", "EWMA with α = 0.2."):
        assert words in caption
    assert caption in " ".join(figure.texts[0].get_text().split("\n"))
    raw = figures.learning_curves(study, alpha=1.0)
    assert lines(panel(raw, "cheetah_run")) == [([0, 10, 20], [2.0, 15.0, 40.0])]
    assert "Not smoothed." in str(raw.get_label())


def test_the_papers_means_are_marks_at_the_right_edge(tmp_path: Path) -> None:
    for method in ("drqv2", "simsr-rev", "zp"):
        write_run(tmp_path, [1.0, 2.0], method=method)
    figure = figures.learning_curves(read_study([tmp_path]), reported=True)
    axes = panel(figure, "cheetah_run")
    marks = [line for line in axes.lines if line.get_transform() != axes.transData]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in marks] == [(1, 691), (1, 848)]
    assert "the paper's means at 1M frames" in str(figure.get_label())


def test_meta_world_is_drawn_by_success(tmp_path: Path) -> None:
    write_run(tmp_path, [0.0, 0.4], task=HAMMER)
    write_run(tmp_path, [0.0, 100.0])
    figure = figures.learning_curves(read_study([tmp_path]))
    assert lines(panel(figure, "hammer")) == [([0, 10], [0.0, pytest.approx(0.2)])]  # α = 0.5
    assert lines(panel(figure, "cheetah_run")) == [([0, 10], [0.0, pytest.approx(20.0)])]
    assert panel(figure, "hammer").get_ylabel() == "success rate"
    assert panel(figure, "cheetah_run").get_ylabel() == "return"
    assert "α = 0.2 and 0.5 (Meta-World)" in str(figure.get_label())
    assert "one seed (n = 1), so no standard error" in str(figure.get_label())


def test_nothing_is_drawn_out_beyond_what_all_seeds_have(tmp_path: Path) -> None:
    write_run(tmp_path, [0.0, 10.0, 20.0, 30.0], seed=1)
    write_run(tmp_path, [4.0, 20.0], seed=2, frames=30)
    write_run(tmp_path, [], seed=3, frames=30)
    figure = figures.learning_curves(read_study([tmp_path]), alpha=1.0)
    mean, single = lines(panel(figure, "cheetah_run"))
    assert mean == ([0, 10], [2.0, 15.0])
    assert single == ([10, 20, 30], [10.0, 20.0, 30.0])
    thick, thin = (line for line in panel(figure, "cheetah_run").lines if len(line.get_xdata()))
    assert thin.get_linewidth() < thick.get_linewidth() / 2
    caption = str(figure.get_label())
    assert "Thin lines: single seeds beyond" in caption
    assert "Not finished: 2 of 3 runs." in caption and "n = 2" in caption


def test_caption_names_unequal_seeds_and_mixed_settings(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path, [0.0, 1.0], seed=seed)
    write_run(tmp_path, [0.0, 1.0], method="mico", quality="full")
    caption = str(figures.learning_curves(read_study([tmp_path])).get_label())
    assert "(n = 2, but 1 for mico on cheetah_run)" in caption
    assert "cheetah_run: not comparable, quality is fast and full." in caption
    best = str(figures.ablation(read_study([tmp_path])).get_label())
    assert (
        "cheetah_run: not comparable" in best
        and "no interval: 1 seed; no interval: 2 seeds." in best
    )


def test_coefficient_is_that_of_train_jsonl(tmp_path: Path) -> None:
    write_run(tmp_path, [0.0, 1.0], method="mico-rev", seed=1, c={5: 0.5, 10: 0.4, 15: 0.3})
    write_run(tmp_path, [0.0, 1.0], method="mico-rev", seed=2, c={5: 0.5, 10: 0.6})
    write_run(tmp_path, [0.0, 1.0], method="drqv2", c={5: None})
    figure = figures.coefficients(read_study([tmp_path]))
    mean, single, start = lines(panel(figure, "cheetah_run"))
    assert mean[0] == [10, 20] and mean[1] == pytest.approx([0.5, 0.5])
    assert single == ([20, 30], [0.4, 0.3]) and start[1] == [0.5, 0.5]
    assert legend(figure) == ["mico-rev"]
    # Half of 0.4 and 0.6's gap.
    ends = sorted({round(y, 9) for x, y in band(panel(figure, "cheetah_run")) if x == 20})
    assert ends == pytest.approx([0.4, 0.6])
    assert "n = 2" in str(figure.get_label()) and "Not smoothed." in str(figure.get_label())


def test_ablation_shows_the_best_and_its_interval(tmp_path: Path) -> None:
    bests = [100.0, 200.0, 600.0, 400.0]
    for seed, best in enumerate(bests, 1):
        write_run(tmp_path, [0.0, best, 50.0, 999.0], seed=seed)
        write_run(tmp_path, [0.0, 70.0, 50.0, 999.0], method="mico", seed=seed)
        for method in ("drqv2", "mico"):
            write_run(tmp_path, [0.0, 0.5, 0.5, 1.0], task=HAMMER, method=method, seed=seed)
    figure = figures.ablation(read_study([tmp_path]), budget=20, seed=4)
    axes = panel(figure, "cheetah_run")
    drawn = [
        (patch.get_x(), patch.get_x() + patch.get_width(), patch.get_y() + patch.get_height() / 2)
        for patch in axes.patches
    ]
    ends = stats.interval(stats.iqm, {CHEETAH: np.array(bests)}, seed=4)
    assert drawn[0] == pytest.approx((float(ends.low), float(ends.high), 0))
    assert drawn[1] == pytest.approx((70.0, 70.0, 1))
    marks = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "None"]
    assert marks == [300.0, 70.0]
    dots = [list(line.get_xdata()) for line in axes.lines if line.get_marker() == "o"]
    assert dots == [bests, [70.0] * 4]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["drqv2", "mico"]
    assert axes.yaxis_inverted()
    # All tasks: 0.1, 0.2, 0.4, 0.6 and ½ four times; two dropped at each end leave 0.4 and three ½.
    overall = panel(figure, "all tasks")
    marks = [line.get_xdata()[0] for line in overall.lines]
    assert marks == pytest.approx([(0.4 + 3 * 0.5) / 4, (0.07 + 0.07 + 0.5 + 0.5) / 4])
    caption = str(figure.get_label())
    for words in (
        "within 20 frames",
        "interquartile mean",
        "n = 4",
        "95% interval (Student's t with",
    ):
        assert words in caption


def test_intervals_are_drawn_from_the_seed(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    finals = {(task, "drqv2"): generator.normal(500, 100, 12) for task in (CHEETAH, WALKER)}
    study = study_of(tmp_path, {key: values.tolist() for key, values in finals.items()})

    def drawn(seed: int) -> list[Any]:
        figure = figures.ablation(study, seed=seed)
        return [[patch.get_x() for patch in axes.patches] for axes in figure.axes]  # type: ignore[attr-defined]

    first, again, other = drawn(0), drawn(0), drawn(4)
    assert first == again and len(first) == 3
    assert all(one != another for one, another in zip(first, other, strict=True))
    ends = stats.interval(stats.iqm, {CHEETAH: finals[CHEETAH, "drqv2"]}, seed=4)
    assert other[0] == [float(ends.low)]


def test_ablation_of_one_task_and_of_tasks_without_bounds(tmp_path: Path) -> None:
    one = figures.ablation(study_of(tmp_path / "a", {(CHEETAH, "drqv2"): [1.0, 2.0]}))
    assert [axes.get_title() for axes in one.axes] == ["cheetah_run"]
    finals = {("gym:A-v1", "drqv2"): [1.0, 2.0], ("gym:B-v1", "drqv2"): [1.0, 2.0]}
    two = figures.ablation(study_of(tmp_path / "b", finals))
    assert [axes.get_title() for axes in two.axes] == ["gym:A-v1", "gym:B-v1"]


def test_ablation_says_what_is_short_of_the_budget(tmp_path: Path) -> None:
    write_run(tmp_path, [0.0, 10.0, 20.0])
    write_run(tmp_path, [0.0, 10.0], method="mico", frames=20)
    caption = str(figures.ablation(read_study([tmp_path])).get_label())
    assert "cheetah_run, mico: only 10 frames." in caption and "drqv2: only" not in caption


@pytest.mark.parametrize("draw", FIGURES)
def test_nothing_to_draw(tmp_path: Path, draw: Any) -> None:
    write_run(tmp_path, [], frames=20)
    with pytest.raises(ValueError, match="there is no"):
        draw(read_study([tmp_path]))


@pytest.mark.parametrize("draw", FIGURES)
def test_one_seed_of_one_method(tmp_path: Path, draw: Any) -> None:
    write_run(tmp_path, [0.0, 100.0], method="mico-rev", c={5: 0.5})
    figure = draw(read_study([tmp_path]))
    assert "n = 1" in str(figure.get_label())
    figure.draw_without_rendering()


def test_methods_differ_by_more_than_colour(tmp_path: Path) -> None:
    methods = ["drqv2", "mico", "simsr", "mico-rev", "simsr-rev", "mico-rev-no-c", "dbc"]
    methods += ["simsr-rev-no-c", "mico-rev-no-sa", "simsr-rev-no-sa", "mico-rev-released"]
    study = study_of(tmp_path, {(CHEETAH, method): [1.0] for method in methods})
    figure = figures.learning_curves(study)
    drawn = [line for line in figure.axes[0].lines if len(line.get_xdata())]
    looks = [(line.get_color(), line._dash_pattern, line.get_marker()) for line in drawn]  # type: ignore[attr-defined]
    assert len(set(map(str, looks))) == len(methods)
    without_colour = [look[1:] for look in looks[:8]]
    assert len(set(map(str, without_colour))) == 8
    assert legend(figure) == sorted(methods)
    handles = figure.legends[0].get_lines()
    assert [one.get_color() for one in handles] == [look[0] for look in looks]


def test_a_method_looks_the_same_in_all_figures(tmp_path: Path) -> None:
    for method in ("drqv2", "mico", "simsr-rev"):
        write_run(tmp_path, [0.0, 1.0], method=method, c={5: 0.5} if "rev" in method else None)
    study = read_study([tmp_path])
    curves, c = figures.learning_curves(study), figures.coefficients(study)
    assert c.legends[0].get_lines()[0].get_color() == curves.legends[0].get_lines()[2].get_color()


def test_save_writes_the_same_bytes_twice(tmp_path: Path) -> None:
    finals = {(task, name): [0.2, 0.4] for task in (CHEETAH, HAMMER) for name in ("drqv2", "mico")}
    study = study_of(tmp_path / "runs", finals)
    first = figures.save(figures.learning_curves(study), tmp_path / "a" / "b", "curves")
    second = figures.save(figures.learning_curves(study), tmp_path / "c", "curves")
    assert [path.name for path in first] == ["curves.png", "curves.svg", "curves.pdf"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    png, svg, pdf = first
    with Image.open(png) as image:
        assert image.width > 1000 and "EWMA" in image.info["Description"]
    assert svg.read_text().startswith("<?xml") and "EWMA" in svg.read_text()
    assert pdf.read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(("count", "shape"), [(1, (1, 1)), (3, (1, 3)), (4, (2, 2)), (5, (2, 3))])
def test_panels_fill_their_rows(tmp_path: Path, count: int, shape: tuple[int, int]) -> None:
    tasks = [CHEETAH, WALKER, HAMMER, "dmc:hopper_hop", "dmc:finger_spin"][:count]
    study = study_of(tmp_path, {(task, "drqv2"): [0.5] for task in tasks})
    figure = figures.learning_curves(study)
    assert len(figure.axes) == count
    assert {axes.get_subplotspec().get_geometry()[:2] for axes in figure.axes} == {shape}
    named = [bool(axes.get_xlabel()) for axes in figure.axes]
    assert named == [place + shape[1] >= count for place in range(count)]


def test_legend_and_caption_are_below_the_panels(tmp_path: Path) -> None:
    methods = ["drqv2", "mico", "simsr", "mico-rev", "simsr-rev", "mico-rev-no-c"]
    tasks = [CHEETAH, WALKER, HAMMER, "dmc:hopper_hop"]
    finals = {(task, method): [0.5] for task in tasks for method in methods}
    figure = figures.learning_curves(study_of(tmp_path, finals))
    figure.draw_without_rendering()
    inside = figure.bbox
    lowest = min(axes.get_tightbbox().y0 for axes in figure.axes)  # type: ignore[union-attr]
    below = figure.legends[0].get_window_extent()
    caption = figure.texts[0].get_window_extent()
    assert lowest >= below.y1 - 1 and below.y0 >= caption.y1 - 1 and caption.y0 >= 0
    for one in (below, caption):
        assert one.x0 >= 0 and one.x1 <= inside.x1


def row(method: str, seed: int, **measures: float) -> dict[str, object]:
    before = {f"phi_{name}_untrained": value / 4 for name, value in measures.items()}
    found = {f"phi_{name}": value for name, value in measures.items()}
    return {"task": "dmc:walker_walk", "method": method, "seed": seed, **found, **before}


def test_a_panel_for_each_measure_with_means_seeds_and_what_was_before() -> None:
    values = {"simsr": [0.1, 0.3, 0.1, 0.3], "zp": [0.6, 0.8, 0.6, 0.8]}
    rows = [
        row(method, seed, denoising_ood=value, state_r2=value / 2)
        for method, both in values.items()
        for seed, value in enumerate(both)
    ]
    panels = draw_offline(rows).axes
    assert [panel.get_title() for panel in panels] == ["DF, evaluation noise", "state R²"]
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["zp", "simsr"]
    _, _, another, mean, dots, before = panels[0].lines
    assert mean.get_xdata() == pytest.approx([0.2, 0.2])
    assert list(dots.get_xdata()) == values["simsr"] and list(dots.get_ydata()) == [1] * 4
    assert before.get_xdata() == pytest.approx([0.05, 0.05])
    assert another.get_xdata() == pytest.approx([0.175, 0.175])
    bars = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in panels[0].patches]
    reach = 3.182446 * 0.1 * (4 / 3) ** 0.5 / 2  # t(3), and a standard deviation of 0.1·√(4/3)
    assert np.allclose(bars, [(0.7 - reach, 0.7 + reach), (0.2 - reach, 0.2 + reach)])


def test_families_stand_together_the_best_first_under_a_sentence() -> None:
    """Each has the mean of its own number; untrained ones have a quarter of it."""
    values = {"mico": 0.1, "zp": 0.2, "simsr-rev": 0.5, "mico-rev-full": 0.6, "simsr": 0.3}
    values |= {"deepmdp": 0.8}
    figure = draw_offline([row(name, 0, denoising_ood=value) for name, value in values.items()])
    (panel,) = figure.axes
    labels = panel.get_yticklabels()
    assert [label.get_text() for label in labels] == [
        *("mico-rev-full", "mico", "simsr-rev", "simsr", "deepmdp", "zp")
    ]
    colours = [label.get_color() for label in labels]
    assert colours[::2] == colours[1::2] and len(set(colours)) == 3
    assert np.diff(panel.get_yticks()).round(1).tolist() == [1.0, 1.7, 1.0, 1.7, 1.0]
    assert " ".join(figure.get_suptitle().split()) == (
        "Noise moves the embeddings of deepmdp least, on average (DF, evaluation noise: 0.80; 0.20 "
        "before training). Best of the other families: mico-rev-full 0.60, simsr-rev 0.50."
    )


def test_methods_of_reward_laws_are_a_family() -> None:
    values = {"laws": 0.5, "zp": 0.9, "means-pairs": 0.1, "laws-zp": 0.6, "means": 0.2}
    (panel,) = draw_offline([row(name, 0, state_r2=value) for name, value in values.items()]).axes
    labels = panel.get_yticklabels()
    names = ["laws-zp", "laws", "means", "means-pairs", "zp"]
    assert [label.get_text() for label in labels] == names
    colours = [label.get_color() for label in labels]
    assert len(set(colours[:4])) == 1 and colours[4] != colours[0]


def test_the_title_says_when_nothing_is_gained() -> None:
    """Of −0.1 a quarter is −0.025, before training; zp is best, and below it."""
    rows = [row(name, 0, state_r2=value) for name, value in (("zp", -0.1), ("simsr", -0.2))]
    assert " ".join(draw_offline(rows).get_suptitle().split()) == (
        "Training by the objective alone does not raise state R² (highest: zp, -0.10; -0.03 before "
        "training)."
    )


def test_no_two_of_36_methods_have_one_colour(tmp_path: Path) -> None:
    for size in range(36):
        write_run(tmp_path / str(size), [0.0, 1.0], batch_size=100 + size)
    looks = figures.looks_of(read_study([tmp_path]))
    assert len(looks) == len({look.colour for look in looks.values()}) == 36
    assert next(iter(looks.values())).colour == "#0072b2"


@pytest.mark.parametrize("n", [1, 3])
def test_few_seeds_have_dots_and_no_interval(n: int) -> None:
    figure = draw_offline([row("simsr", seed, state_r2=0.4) for seed in range(n)])
    (panel,) = figure.axes
    mean, dots, _ = panel.lines
    assert mean.get_xdata() == pytest.approx([0.4, 0.4])
    assert list(dots.get_xdata()) == [0.4] * n and not panel.patches
    words = f"(dots); no interval: {n} seed" + "s" * (n > 1) + ". Dashed"
    assert words in str(figure.get_label())
