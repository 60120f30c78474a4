"""The figure of `revbis isolate`: what objectives alone make of the same transitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np

from revbis.analysis.panels import (
    STYLE,
    Look,
    draw_interval,
    make_panels,
    method_axis,
    method_height,
)
from revbis.yardsticks.names import MEASURES
from revbis.yardsticks.probe.summaries import interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOK = Look("#0072B2", "-", "o")
_SHOWN = ("denoising_ood", "state_r2", "value")
_CAPTION = (
    "Embeddings φ of encoders trained by the objective alone, right is better: mean over seeds "
    "(dots) with its 95% bootstrap interval. Dashed: before training."
)


def draw_isolated(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """A panel for each measure that there is, a row for each method.

    Args:
        rows: Of finished cells, as `revbis.isolation.cells.read_cell` gives them; at least one.
    """
    methods = list(dict.fromkeys(row["method"] for row in rows))
    shown = [name for name in _SHOWN if any(f"phi_{name}" in row for row in rows)]
    with mpl.rc_context(STYLE):
        caption = f"{rows[0]['task']}. {_CAPTION}"
        figure, panels = make_panels(
            len(shown), caption, (), height=method_height(methods), share=True
        )
        for name, panel in zip(shown, panels, strict=True):
            for place, method in enumerate(methods):
                mine = [row for row in rows if row["method"] == method]
                _draw_method(panel, place, _values(mine, f"phi_{name}"))
                before = float(np.mean(_values(mine, f"phi_{name}_untrained")))
                ends = [place - 0.45, place + 0.45]
                panel.plot([before, before], ends, color="0.35", lw=0.8, ls="--")
            panel.set(title=MEASURES[name])
            method_axis(panel, methods)
    return figure


def _values(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [row[name] for row in rows if name in row]


def _draw_method(panel: Axes, place: int, values: Sequence[float]) -> None:
    if len(values) > 1:
        draw_interval(panel, place, interval(values), _LOOK)
    panel.plot(values, [place] * len(values), ".", color="0.2", ms=3)
