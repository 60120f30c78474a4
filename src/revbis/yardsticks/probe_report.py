"""The probe's table, records and picture."""

from __future__ import annotations

import csv
import io

import matplotlib

matplotlib.use("Agg")

from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np

from revbis.system.files import whole_file, write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from revbis.yardsticks.probe import Measurement

_MOST_DOTS = 2500


def summary(group: Sequence[Measurement]) -> dict[str, str]:
    """One row of the table: a method's seeds together, each figure before → after training."""
    first = group[0]
    spread = f" ± {np.std([m.trained.spearman for m in group]):.2f}" if len(group) > 1 else ""
    return {
        "method": first.method + (" (raw)" if first.normalised is False else ""),
        "compares": "pairs" if first.level == "state_action" else "states",
        "ρ with exact": _change(
            [m.start.spearman for m in group], [m.trained.spearman for m in group]
        )
        + spread,
        "ρ of φ, states": _change(
            [m.untrained_encoder_rank for m in group], [m.encoder_rank for m in group]
        ),
        "ρ with |ΔV|": _change(
            [m.untrained_value_rank for m in group], [m.value_rank for m in group]
        ),
        "neighbours": _change(
            [m.start.neighbour_overlap for m in group],
            [m.trained.neighbour_overlap for m in group],
        ),
        "stress": f"{np.mean([m.trained.stress for m in group]):.2f}",
        "self-distance": f"{np.mean([m.trained.self_distance for m in group]):.2f}",
        "(exact)": f"{np.mean([m.trained.exact_self_distance for m in group]):.2f}",
        "c": f"{np.mean([m.c for m in group]):.2f}",
    }


def write_csv(groups: Sequence[Sequence[Measurement]], path: Path) -> None:
    """Every seed's figures, a row each."""
    rows = [_record(m) for group in groups for m in group]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    write_whole(path, text.getvalue().encode())


def draw(measurements: Sequence[Measurement], path: Path) -> None:
    """Learned against exact distance, a panel for each method; untrained in grey."""
    columns = min(5, len(measurements))
    rows = -(-len(measurements) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(3.1 * columns, 3.1 * rows), squeeze=False, layout="constrained"
    )
    for panel, measurement in zip(axes.flat, measurements, strict=False):
        exact, before, after = _sample(measurement)
        panel.plot(exact, before, ".", color="0.7", ms=2, rasterized=True, label="untrained")
        panel.plot(exact, after, ".", color="#0072B2", ms=2, rasterized=True, label="trained")
        raw = measurement.normalised is False
        name = measurement.method + ("\n(not normalised)" if raw else "")
        panel.set_title(f"{name}   ρ = {measurement.trained.spearman:.2f}", fontsize=9)
        panel.tick_params(labelsize=7)
    for panel in axes.flat[len(measurements) :]:
        panel.axis("off")
    axes.flat[0].legend(fontsize=7, markerscale=4)
    figure.supxlabel("exact distance", fontsize=10)
    figure.supylabel("learned distance", fontsize=10)
    with whole_file(path) as file:
        figure.savefig(file, format="png", dpi=130)
    plt.close(figure)


def _sample(m: Measurement) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    i, j = np.triu_indices(len(m.learned), 1)
    if len(i) > _MOST_DOTS:
        chosen = np.random.default_rng(0).choice(len(i), _MOST_DOTS, replace=False)
        i, j = i[chosen], j[chosen]
    return m.exact.pairs(i, j), m.untrained[i, j], m.learned[i, j]


def _record(m: Measurement) -> dict[str, object]:
    return {
        "method": m.method,
        "normalised": m.normalised,
        "seed": m.seed,
        "level": m.level,
        "c": m.c,
        "spearman": m.trained.spearman,
        "spearman_untrained": m.start.spearman,
        "encoder_spearman": m.encoder_rank,
        "encoder_spearman_untrained": m.untrained_encoder_rank,
        "kendall": m.trained.kendall,
        "neighbour_overlap": m.trained.neighbour_overlap,
        "neighbour_overlap_untrained": m.start.neighbour_overlap,
        "value_spearman": m.value_rank,
        "value_spearman_untrained": m.untrained_value_rank,
        "scale": m.trained.scale,
        "stress": m.trained.stress,
        "residual": m.trained.residual,
        "error_bound": m.trained.error_bound,
        "value_violations": m.trained.violations,
        "collapsed": m.trained.collapsed,
        "self_distance": m.trained.self_distance,
        "exact_self_distance": m.trained.exact_self_distance,
        "smallest": float(m.learned.min()),
        "largest": float(m.learned.max()),
    }


def _change(before: list[float], after: list[float]) -> str:
    return f"{np.mean(before):5.2f} → {np.mean(after):5.2f}"
