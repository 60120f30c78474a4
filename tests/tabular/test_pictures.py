"""Pictures: states, rows and columns are counted in whole numbers, and titles name the MDP."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

from revbis import tabular
from revbis.tabular import examples, pictures
from revbis.tabular.aggregation import value_loss


@pytest.mark.parametrize("size", [1, 2, 3, 6, 13])
def test_ticks_are_whole_numbers_and_the_mdp_is_named(size: int, tmp_path: Path, monkeypatch):
    drawn = []
    monkeypatch.setattr(plt, "close", drawn.append)
    result = tabular.revised(*examples.grid_world(size), 0.9)
    path = tmp_path / "grid.png"
    pictures.draw_metric(
        result, tabular.policy_value(result.mdp, result.policy, 0.9), 0, path, "a grid"
    )
    monkeypatch.undo()
    (figure,) = drawn
    heat_map, _, grid_map = figure.axes[:3]
    for axes in (heat_map, grid_map):
        for ticks in (axes.get_xticks(), axes.get_yticks()):
            assert all(float(tick).is_integer() for tick in ticks)
    assert figure.get_suptitle().startswith("a grid: revised, γ = 0.9")
    assert path.read_bytes().startswith(b"\x89PNG")
    plt.close(figure)


@pytest.mark.parametrize(("eps", "classes"), [(0.0, None), (100.0, 1)])
def test_classes_on_a_grid(eps: float, classes: int | None, tmp_path: Path, monkeypatch):
    drawn = []
    monkeypatch.setattr(plt, "close", drawn.append)
    result = tabular.revised(*examples.four_rooms(7), 0.9)
    merged = tabular.aggregate(result, eps)
    loss = value_loss(result, merged)
    pictures.draw_classes(result, merged, loss, tmp_path / "x.png", "rooms")
    monkeypatch.undo()
    (figure,) = drawn
    left, right = figure.axes[:2]
    colours = left.images[0].get_array()
    assert np.ma.count_masked(np.ma.masked_invalid(colours)) == 49 - result.n  # the walls
    assert len(np.unique(np.ma.masked_invalid(colours).compressed())) == merged.n_classes
    assert len(left.lines[0].get_xdata()) == merged.n_classes
    assert f"{classes or merged.n_classes} classes" in left.get_title()
    assert right.images[0].get_clim() == (0, max(loss.max(), 1e-12))
    assert f"{merged.value_loss_bound:.3g}" in right.get_title()
    plt.close(figure)
