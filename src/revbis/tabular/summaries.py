"""Rows of the tables that `revbis tabular` prints: cells by the name of their column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from revbis.tabular.aggregation import Aggregation, value_loss
from revbis.tabular.output import MATRIX_UP_TO, row_names

if TYPE_CHECKING:
    from revbis.tabular.gaps import ValueGaps
    from revbis.tabular.result import MetricResult
    from revbis.tabular.statements import Statement

Row = dict[str, str]


def metric_row(result: MetricResult, seconds: float) -> Row:
    """How a metric was solved, and how large its distances are."""
    shown = np.random.default_rng(0).integers(result.n, size=(2, 100_000))
    sample = result.pairs(*shown) if result.n > MATRIX_UP_TO else result.matrix()
    rank = "" if result.rank is None else f" (rank {result.rank})"
    return {
        "metric": result.metric,
        "error bound": f"{result.error_bound:.1e}",
        "solver": result.solver + rank,
        "iterations": str(result.iterations),
        "seconds": f"{seconds:.2f}",
        "mean distance": f"{float(sample.mean()):.4g}",
        "largest": f"{float(sample.max()):.4g}",
        "largest self": f"{float(result.self_distance().max()):.4g}",
    }


def matrix_rows(result: MetricResult, digits: int) -> list[Row]:
    """The distances with so many digits."""
    names = row_names(result)
    return [
        {"": name} | {other: f"{x:.{digits}f}" for other, x in zip(names, row, strict=True)}
        for name, row in zip(names, result.matrix(), strict=True)
    ]


def gaps_row(gaps: ValueGaps) -> Row:
    """How tight the bounds on value gaps are."""
    return {
        "metric": gaps.rule.result.metric,
        "bounds": f"|Δ{gaps.rule.value}|",
        "mean gap": f"{gaps.gap.mean():.4g}",
        "mean bound": f"{gaps.bound.mean():.4g}",
        "gap/bound": f"{gaps.tightness:.1%}",
        "largest gap": f"{gaps.gap.max():.4g}",
        "largest bound": f"{gaps.bound.max():.4g}",
        "holds": "yes" if gaps.holds else "NO",
    }


def pair_rows(gaps: ValueGaps, count: int) -> list[Row]:
    """The pairs with the largest gaps."""
    names = row_names(gaps.rule.result)
    return [
        {
            "pair": f"{names[gaps.i[k]]}, {names[gaps.j[k]]}",
            f"|Δ{gaps.rule.value}|": f"{gaps.gap[k]:.4g}",
            "bound": f"{gaps.bound[k]:.4g}",
            "distance": f"{gaps.distance[k]:.4g}",
        }
        for k in gaps.largest(count)
    ]


def classes_row(result: MetricResult, merged: Aggregation) -> Row:
    """How many classes there are, and what merging costs."""
    loss = float(value_loss(result, merged).max())
    return {
        "metric": result.metric,
        "states": str(result.n),
        "classes": str(merged.n_classes),
        "largest class": str(np.bincount(merged.labels).max()),
        "value-loss bound": f"{merged.value_loss_bound:.4g}",
        "true loss": f"{loss:.4g}",
    }


def statement_row(statement: Statement) -> Row:
    """Whether an inequality holds."""
    holds = "yes" if statement.holds else ("NO" if statement.theorem else "no")
    return {"statement": statement.text, "holds": holds, "slack": f"{statement.slack:.2e}"}
