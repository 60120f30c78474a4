"""The figure of objectives alone."""

import numpy as np
import pytest

from revbis.analysis.figures import draw_offline


def row(method: str, seed: int, **measures: float) -> dict[str, object]:
    before = {f"phi_{name}_untrained": value / 4 for name, value in measures.items()}
    found = {f"phi_{name}": value for name, value in measures.items()}
    return {"task": "dmc:walker_walk", "method": method, "seed": seed, **found, **before}


def test_a_panel_for_each_measure_with_means_seeds_and_what_was_before() -> None:
    values = {"simsr": [0.1, 0.3], "zp": [0.6, 0.8]}
    rows = [
        row(method, seed, denoising_ood=value, state_r2=value / 2)
        for method, both in values.items()
        for seed, value in enumerate(both)
    ]
    panels = draw_offline(rows).axes
    assert [panel.get_title() for panel in panels] == ["DF, evaluation noise", "state R²"]
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["simsr", "zp"]
    mean, dots, before, _, _, another = panels[0].lines
    assert mean.get_xdata() == pytest.approx([0.2, 0.2])
    assert list(dots.get_xdata()) == [0.1, 0.3] and list(dots.get_ydata()) == [0, 0]
    assert before.get_xdata() == pytest.approx([0.05, 0.05])
    assert another.get_xdata() == pytest.approx([0.175, 0.175])
    bars = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in panels[0].patches]
    assert np.allclose(bars, [(0.1, 0.3), (0.6, 0.8)])


def test_one_seed_has_a_dot_and_no_interval() -> None:
    (panel,) = draw_offline([row("simsr", 0, state_r2=0.4)]).axes
    assert list(panel.lines[0].get_xdata()) == [0.4] and not panel.patches
