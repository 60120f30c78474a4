"""Exact bisimulation metrics on finite MDPs, with certified error bounds.

Names load on first use: importing this package, as `revbis tabular --help` does, costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from revbis.tabular import examples
    from revbis.tabular.aggregation import Aggregation, aggregate
    from revbis.tabular.bounds import Certificate, ValueGapBound, certify, value_gap_bound
    from revbis.tabular.comparison import Comparison, compare
    from revbis.tabular.embedding import Embedding, NegativeType, negative_type
    from revbis.tabular.laws import LawValue, ReducedDistance, RewardLaws, reward_laws
    from revbis.tabular.mdp import FiniteMDP
    from revbis.tabular.metrics import (
        bisimulation,
        lax_bisimulation,
        mico,
        pi_bisimulation,
        revised,
    )
    from revbis.tabular.registry import METRICS, Metric, register_metric, unregister_metric
    from revbis.tabular.result import MetricResult, Query
    from revbis.tabular.samples import Interval, SampledLaws, estimate_laws
    from revbis.tabular.solver import ToleranceWarning, solve
    from revbis.tabular.values import action_value, optimal_policy, policy_value

__all__ = [
    "METRICS",
    "Aggregation",
    "Certificate",
    "Comparison",
    "Embedding",
    "FiniteMDP",
    "Interval",
    "LawValue",
    "Metric",
    "MetricResult",
    "NegativeType",
    "Query",
    "ReducedDistance",
    "RewardLaws",
    "SampledLaws",
    "ToleranceWarning",
    "ValueGapBound",
    "action_value",
    "aggregate",
    "bisimulation",
    "certify",
    "compare",
    "estimate_laws",
    "examples",
    "lax_bisimulation",
    "mico",
    "negative_type",
    "optimal_policy",
    "pi_bisimulation",
    "policy_value",
    "register_metric",
    "revised",
    "reward_laws",
    "solve",
    "unregister_metric",
    "value_gap_bound",
]

_MODULES = {
    "aggregation": ("Aggregation", "aggregate"),
    "bounds": ("Certificate", "ValueGapBound", "certify", "value_gap_bound"),
    "comparison": ("Comparison", "compare"),
    "embedding": ("Embedding", "NegativeType", "negative_type"),
    "laws": ("LawValue", "ReducedDistance", "RewardLaws", "reward_laws"),
    "mdp": ("FiniteMDP",),
    "metrics": ("bisimulation", "lax_bisimulation", "mico", "pi_bisimulation", "revised"),
    "registry": ("METRICS", "Metric", "register_metric", "unregister_metric"),
    "result": ("MetricResult", "Query"),
    "samples": ("Interval", "SampledLaws", "estimate_laws"),
    "solver": ("ToleranceWarning", "solve"),
    "values": ("action_value", "optimal_policy", "policy_value"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    if name == "examples":
        return import_module(f"{__name__}.examples")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, getattr(import_module(f"{__name__}.{_HOMES[name]}"), name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
