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


@pytest.mark.parametrize("count", [1, 2, 4, 6])
def test_a_panel_for_each_horizon(count: int, tmp_path: Path, monkeypatch):
    drawn = []
    monkeypatch.setattr(plt, "close", drawn.append)
    laws = tabular.reward_laws(*examples.four_rooms(5), 0.95)
    gammas = [0.0, 0.5, 0.6, 0.8, 0.9, 0.95][:count]
    pictures.draw_horizons([laws.distance(g) for g in gammas], 3, tmp_path / "x.png", "rooms")
    coins = tabular.reward_laws(*examples.two_coins(), 0.95)
    pictures.draw_horizons([coins.distance(c=g) for g in gammas], 0, tmp_path / "y.png", "coins")
    monkeypatch.undo()
    titles = [[axes.get_title() for axes in each.axes if axes.get_title()] for each in drawn]
    steps = ["1 step", "2 steps", "2.5 steps", "5 steps", "10 steps", "20 steps"]
    assert titles[0] == [f"γ = {g:g} ({s})" for g, s in zip(gammas, steps, strict=False)]
    assert titles[1] == [f"c = {g:g} ({s})" for g, s in zip(gammas, steps, strict=False)]
    assert drawn[0].get_suptitle().startswith("rooms: distance from state 3 as the horizon grows")
    assert drawn[1].get_suptitle().startswith("coins: distances as the horizon grows")
    image = drawn[0].axes[0].images[0].get_array()
    assert np.isclose(np.nanmax(image), laws.distance(gammas[0]).row(3).max())
    for figure in drawn:
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
