"""Pictures: heat map and embedding of a metric, distances and classes on a grid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from revbis.io.files import atomic_file
from revbis.tabular.embedding import principal_axes
from revbis.tabular.registry import find_metric

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from revbis.tabular.aggregation import Aggregation
    from revbis.tabular.mdp import FiniteMDP
    from revbis.tabular.result import MetricResult

Array = NDArray[np.float64]
_MOST_ROWS = 600  # more rows than this do not fit the pixels of a heat map
_MOST_DOTS = 5000
_NUMBERS_UP_TO = 12


def draw_metric(result: MetricResult, value: Array, origin: int, path: Path, name: str) -> None:
    """Draws one metric: heat map, embedding, and for grids a map of the distances from `origin`.

    The value of each state (or pair), (n,), colours the embedding.
    """
    on_grid = result.mdp.grid is not None and result.level == "state"
    panels = 3 if on_grid else 2
    figure, axes = plt.subplots(1, panels, figsize=(4.6 * panels, 4.3), layout="constrained")
    _heat_map(axes[0], result)
    _embedding(axes[1], result, value, origin)
    if on_grid:
        title = f"distance from state {origin}"
        image = _on_grid(axes[2], result.mdp, result.row(origin), title)
        figure.colorbar(image, ax=axes[2], shrink=0.75)
        _mark(axes[2], result.mdp, np.array([origin]), mec="crimson", ms=11, mew=1.8)
    _save(figure, _title(result, name), path)


def draw_classes(
    result: MetricResult, merged: Aggregation, loss: Array, path: Path, name: str
) -> None:
    """Draws an aggregation of a grid: the class of each state, and its loss |V − V̄|, (S,)."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 4.3), layout="constrained")
    # Classes are numbered in the order of their states: shuffled, neighbours differ in colour.
    colour = np.random.default_rng(0).permutation(merged.n_classes)[merged.labels]
    title = f"{merged.n_classes} classes, representatives circled"
    _on_grid(left, result.mdp, colour, title).set(cmap="turbo", interpolation="nearest")
    side = result.mdp.grid.max() + 1 if result.mdp.grid is not None else 1
    _mark(left, result.mdp, merged.representatives, mec="white", ms=min(6, 120 / side), mew=1.2)
    title = f"value loss (certified: at most {merged.value_loss_bound:.3g})"
    image = _on_grid(right, result.mdp, loss, title)
    image.set_clim(0, max(float(loss.max()), 1e-12))
    figure.colorbar(image, ax=right, shrink=0.75)
    _save(figure, _title(result, name), path)


def draw_horizons(readings: Sequence[MetricResult], origin: int, path: Path, name: str) -> None:
    """Draws one metric at several discounts: a panel each, with its own colour scale.

    On a grid the panels are maps of the distances from the state `origin`, else all distances.
    """
    columns = min(len(readings), 3)
    rows = -(-len(readings) // columns)
    size = (3.6 * columns, 3.4 * rows)
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    for each in axes.flat[len(readings) :]:
        each.remove()
    for panel, result in zip(axes.flat, readings, strict=False):
        steps = 1 / (1 - result.discount)
        symbol = "γ" if result.c is None else "c"
        title = f"{symbol} = {result.discount:g} ({_rounded(steps)})"
        if result.mdp.grid is not None and result.level == "state":
            image = _on_grid(panel, result.mdp, result.row(origin), title)
            _mark(panel, result.mdp, np.array([origin]), mec="crimson", ms=9, mew=1.6)
            figure.colorbar(image, ax=panel, shrink=0.75)
        else:
            _heat_map(panel, result)
            panel.set_title(title)
        panel.label_outer()
    error = max(result.error_bound for result in readings)
    on_grid = readings[0].mdp.grid is not None and readings[0].level == "state"
    what = f"distance from state {origin}" if on_grid else "distances"
    _save(figure, f"{name}: {what} as the horizon grows (certified error {error:.0e})", path)


def _rounded(steps: float) -> str:
    count = f"{steps:.0f}" if abs(steps - round(steps)) < 0.05 else f"{steps:.1f}"
    return "1 step" if count == "1" else f"{count} steps"


def _heat_map(axes: Axes, result: MetricResult) -> None:
    shown = np.unique(np.linspace(0, result.n - 1, min(result.n, _MOST_ROWS)).astype(int))
    image = axes.imshow(result.pairs(shown[:, None], shown[None, :]), cmap="viridis")
    axes.figure.colorbar(image, ax=axes, shrink=0.75)
    what = "state" if result.level == "state" else "state-action pair"
    sampled = "" if len(shown) == result.n else f" ({len(shown)} of {result.n} shown)"
    axes.set(title=f"distance between {what}s{sampled}", xlabel=what, ylabel=what)
    _whole_ticks(axes)
    if len(shown) < result.n:
        ticks = np.linspace(0, len(shown) - 1, 5).astype(int)
        axes.set_xticks(ticks, [str(shown[t]) for t in ticks])
        axes.set_yticks(ticks, [str(shown[t]) for t in ticks])
    if result.n <= _NUMBERS_UP_TO:
        _numbers(axes, result.matrix())
        axes.set_xticks(shown)
        axes.set_yticks(shown)


def _numbers(axes: Axes, matrix: Array) -> None:
    middle = (matrix.max() + matrix.min()) / 2
    for (i, j), distance in np.ndenumerate(matrix):
        colour = "white" if distance <= middle else "black"
        size = 9 if len(matrix) <= 6 else 6
        axes.text(j, i, f"{distance:.3g}", ha="center", va="center", color=colour, fontsize=size)


def _embedding(axes: Axes, result: MetricResult, value: Array, origin: int) -> None:
    positions = principal_axes(result, 2)
    shown = np.arange(result.n)
    if result.n > _MOST_DOTS:
        shown = np.sort(np.random.default_rng(0).choice(result.n, _MOST_DOTS, replace=False))
    size = 60 if result.n <= 50 else 18 if result.n <= 1000 else 6
    x, y = positions.T
    dots = axes.scatter(x[shown], y[shown], c=value[shown], cmap="cividis", s=size, alpha=0.9)
    axes.plot(x[origin], y[origin], "o", mfc="none", mec="crimson", ms=2 * size**0.5, mew=1.6)
    axes.figure.colorbar(dots, ax=axes, shrink=0.75, label="value")
    kind = "reduced distance" if find_metric(result.metric).is_euclidean else "classical scaling"
    axes.set(title=f"two principal axes ({kind})", xlabel="axis 1", ylabel="axis 2")
    axes.set_aspect("equal", adjustable="datalim")
    if result.n <= _NUMBERS_UP_TO:
        _labels(axes, positions)


def _labels(axes: Axes, positions: Array) -> None:
    """Names of the states; states at the same place share a label."""
    places: dict[tuple[float, float], list[int]] = {}
    scale = max(float(np.ptp(positions)), 1e-12)
    for state, (x, y) in enumerate(positions):
        key = (round(x / scale, 2), round(y / scale, 2))
        places.setdefault(key, []).append(state)
    for states in places.values():
        name = ", ".join(str(s) for s in states)
        axes.annotate(name, positions[states[0]], xytext=(6, 6), textcoords="offset points")


def _on_grid(axes: Axes, mdp: FiniteMDP, numbers: NDArray[Any], title: str) -> AxesImage:
    """A number for each state at its place; cells that are not states are grey."""
    assert mdp.grid is not None
    picture = np.full(mdp.grid.max(axis=0) + 1, np.nan)
    picture[mdp.grid[:, 0], mdp.grid[:, 1]] = numbers
    axes.set_facecolor("0.35")
    axes.set(title=title, xlabel="column", ylabel="row")
    image = axes.imshow(picture, cmap="viridis")
    _whole_ticks(axes)
    return image


def _mark(axes: Axes, mdp: FiniteMDP, states: NDArray[np.int64], **style: Any) -> None:
    """Circles around states of a grid."""
    assert mdp.grid is not None
    rows, columns = mdp.grid[states].T
    axes.plot(columns, rows, "o", mfc="none", **style)


def _title(result: MetricResult, name: str) -> str:
    weights = f"γ = {result.gamma:g}" if result.c is None else f"c = {result.discount:g}"
    return (
        f"{name}: {find_metric(result.metric).title}, {weights}   "
        f"(certified error {result.error_bound:.0e}, {result.solver})"
    )


def _save(figure: Figure, title: str, path: Path) -> None:
    figure.suptitle(title)
    with atomic_file(path) as file:
        figure.savefig(file, format="png", dpi=130, bbox_inches="tight")
    plt.close(figure)


def _whole_ticks(axes: Axes) -> None:
    """States, rows and columns are counted: no tick lies between two of them."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins="auto", integer=True, min_n_ticks=1))
