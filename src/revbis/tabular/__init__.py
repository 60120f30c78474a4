"""Exact bisimulation metrics on finite MDPs, with certified error bounds."""

from revbis.tabular import examples
from revbis.tabular.aggregation import Aggregation, aggregate
from revbis.tabular.bounds import Certificate, ValueGapBound, certify, value_gap_bound
from revbis.tabular.comparison import Comparison, compare
from revbis.tabular.mdp import FiniteMDP
from revbis.tabular.metrics import bisimulation, lax_bisimulation, mico, pi_bisimulation, revised
from revbis.tabular.result import MetricResult
from revbis.tabular.solver import METRICS, ToleranceWarning, solve
from revbis.tabular.values import action_value, optimal_policy, policy_value

__all__ = [
    "METRICS",
    "Aggregation",
    "Certificate",
    "Comparison",
    "FiniteMDP",
    "MetricResult",
    "ToleranceWarning",
    "ValueGapBound",
    "action_value",
    "aggregate",
    "bisimulation",
    "certify",
    "compare",
    "examples",
    "lax_bisimulation",
    "mico",
    "optimal_policy",
    "pi_bisimulation",
    "policy_value",
    "revised",
    "solve",
    "value_gap_bound",
]
