"""Pictures: states, rows and columns are counted in whole numbers, and the MDP is named."""

from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from revbis import tabular
from revbis.tabular import examples, pictures


@pytest.mark.parametrize("size", [1, 2, 3, 6, 13])
def test_ticks_are_whole_numbers_and_the_mdp_is_named(size: int, tmp_path: Path, monkeypatch):
    drawn = []
    monkeypatch.setattr(plt, "close", drawn.append)
    result = tabular.revised(*examples.grid_world(size), 0.9)
    path = tmp_path / "grid.png"
    pictures.draw(result, tabular.policy_value(result.mdp, result.policy, 0.9), 0, path, "a grid")
    monkeypatch.undo()
    (figure,) = drawn
    heat_map, _, grid_map = figure.axes[:3]
    for axes in (heat_map, grid_map):
        for ticks in (axes.get_xticks(), axes.get_yticks()):
            assert all(float(tick).is_integer() for tick in ticks)
    assert figure.get_suptitle().startswith("a grid: revised, γ = 0.9")
    assert path.read_bytes().startswith(b"\x89PNG")
    plt.close(figure)
