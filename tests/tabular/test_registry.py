"""The registry of metrics, and a metric that is added from outside the package."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli import fails

from revbis import tabular
from revbis.cli import main
from revbis.tabular import METRICS, FiniteMDP, Metric, Query, examples
from revbis.tabular.registry import OnIteration, Solution, Solver
from revbis.tabular.theorems import check_theorems


@dataclass(frozen=True)
class WorstCase:
    """d(s,t) = max_a [|r(s,a) − r(t,a)| + γ max of d(s',t') over all possible successors]."""

    mdp: FiniteMDP
    reward_weight: float
    discount: float

    @property
    def n(self) -> int:
        return self.mdp.n_states

    def apply(self, d: np.ndarray) -> tuple[np.ndarray, float]:
        mdp = self.mdp
        possible = mdp.transitions.toarray().reshape(mdp.n_states, mdp.n_actions, -1) > 0
        out = np.zeros_like(d)
        for s, t in np.ndindex(*d.shape):
            for a in range(mdp.n_actions):
                gap = self.reward_weight * abs(mdp.rewards[s, a] - mdp.rewards[t, a])
                following = d[np.ix_(possible[s, a], possible[t, a])].max()
                out[s, t] = max(out[s, t], gap + self.discount * following)
        return out, 1e-15


def iterate(problem: WorstCase, tol: float, on_iteration: OnIteration) -> Solution:
    d, steps = np.zeros((problem.n, problem.n)), 0
    while True:
        new, error = problem.apply(d)
        steps += 1
        change = np.abs(new - d).max()
        bound = (problem.discount * change + error) / (1 - problem.discount)
        on_iteration(steps, bound)
        d = new
        if bound <= tol:
            return Solution(bound, steps, matrix=d)


def worst_case(query: Query) -> WorstCase:
    return WorstCase(query.mdp, query.reward_weight, query.discount)


ITERATION = Solver("iteration", iterate, memory=lambda problem: 3 * 8 * problem.n**2)
TOY = Metric("worst_case", worst_case, (ITERATION,), levels=("state",), needs_policy=False)
# The two chains of `delay`: a reward of 1 at every step once the first has ended, 0 in the second.
FAR_ENDS = 1 / (1 - 0.5)  # of states 2 and 5 at discount 0.5, after two steps each


@pytest.fixture
def toy() -> Iterator[Metric[Any]]:
    tabular.register_metric(TOY)
    try:
        yield TOY
    finally:
        tabular.unregister_metric(TOY.name)
    assert TOY.name not in METRICS


def test_a_metric_from_outside_is_solved_by_name(toy: Metric[Any]) -> None:
    mdp, _ = examples.delay_chain(2)
    steps: list[tuple[int, float]] = []
    result = tabular.solve(
        "worst_case", mdp, None, 0.5, tol=1e-9, progress=lambda *x: steps.append(x)
    )
    assert (result.metric, result.solver) == ("worst_case", "iteration")
    assert len(steps) == result.iterations > 10
    assert result.policy is None
    matrix = result.matrix()
    assert matrix[2, 5] == pytest.approx(FAR_ENDS, abs=1e-8)
    assert matrix[0, 3] == pytest.approx(FAR_ENDS / 4, abs=1e-8)  # the reward is two steps away
    assert matrix[3, 4] == pytest.approx(0, abs=1e-8)
    halved = tabular.solve("worst_case", mdp, None, 0.9, c=0.5)
    assert halved.matrix()[2, 5] == pytest.approx(1, abs=1e-5)


def test_everything_else_asks_the_record(toy: Metric[Any]) -> None:
    mdp, policy = examples.garnet(6, 2, 2, seed=0)
    result = tabular.solve("worst_case", mdp, policy, 0.5)
    optimal, _ = tabular.optimal_policy(mdp, 0.5)
    bound = tabular.value_gap_bound(result)
    assert bound.value == "V*" and "ρ" not in bound.explanation
    assert (np.abs(optimal[:, None] - optimal) <= bound.matrix() + 1e-12).all()
    certificate = tabular.certify(mdp, None, np.zeros((6, 6)), "worst_case", 0.5)
    assert result.matrix().max() <= certificate.error_bound + result.error_bound
    assert tabular.aggregate(result, np.inf).n_classes == 1
    with pytest.raises(ValueError, match="worst_case has no exact embedding"):
        result.embedding(2)
    assert tabular.compare(result, result).spearman == pytest.approx(1)
    texts = [each.text for each in check_theorems(mdp, policy, 0.5) if each.holds]
    assert "a random matrix is no further from worst case than certified" in texts


def test_the_command_line_knows_it(toy: Metric[Any], tmp_path: Path, capsys) -> None:
    words = ["--example", "delay", "--size", "2", "--gamma", "0.5", "--out", str(tmp_path)]
    main(["tabular", "solve", "--metric", "worst_case", *words])
    assert "iteration" in capsys.readouterr().out
    with np.load(tmp_path / "delay-2-worst_case-gamma-0.5.npz") as file:
        assert file["matrix"][2, 5] == pytest.approx(FAR_ENDS, abs=1e-5)
    main(["tabular", "values", "--metric", "all", *words])
    assert "worst_case" in capsys.readouterr().out
    error = fails(
        capsys, "tabular", "solve", "--metric", "worst_case", "--solver", "jacobi", *words
    )
    assert "solver must be one of auto, iteration, got 'jacobi'" in error
    error = fails(
        capsys, "tabular", "solve", "--metric", "worst_case", "--level", "state_action", *words
    )
    assert "worst_case is a metric on states: level must be 'state'" in error


def test_an_unregistered_metric_is_unknown(tmp_path: Path, capsys) -> None:
    with pytest.raises(ValueError, match=r"metric must be one of revised, .*, got 'worst_case'"):
        tabular.solve("worst_case", *examples.toy(), 0.9)
    error = fails(capsys, "tabular", "solve", "--example", "toy", "--metric", "worst_case")
    assert "metric must be one of revised, mico" in error and "all, got 'worst_case'" in error


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({"weighted": False}, {"c": 0.5}, "worst_case has no weighted form: leave out c"),
        ({"needs_policy": True}, {}, "worst_case needs a policy"),
        (
            {"levels": ("state_action",)},
            {},
            "worst_case is a metric on state-action pairs: level must be 'state_action'",
        ),
        (
            {"solvers": (replace(ITERATION, applies=lambda problem: False),)},
            {},
            "worst_case has no solver that can solve this problem",
        ),
        ({"solvers": (replace(ITERATION, run=lambda *_: None),)}, {}, "has no solver that can"),
    ],
)
def test_what_a_record_does_not_offer_is_refused(
    changes: dict[str, Any], arguments: dict[str, Any], message: str
) -> None:
    tabular.register_metric(replace(TOY, **changes))
    try:
        with pytest.raises(ValueError, match=message):
            tabular.solve("worst_case", examples.toy().mdp, None, 0.9, **arguments)
    finally:
        tabular.unregister_metric("worst_case")


def test_memory_is_checked_before_a_metric_from_outside_runs(toy: Metric[Any], free_memory) -> None:
    free_memory(10)
    with pytest.raises(MemoryError, match=r"the iteration solver on 3 states .*; use fewer states"):
        tabular.solve("worst_case", examples.toy().mdp, None, 0.9)


def test_names_that_cannot_be_registered() -> None:
    for name in ("all", "", "a b", "../x", "Worst", "1st"):
        with pytest.raises(ValueError, match=r"must be a lower-case identifier other than 'all'"):
            tabular.register_metric(replace(TOY, name=name))
    with pytest.raises(ValueError, match="there is a metric named 'mico' already"):
        tabular.register_metric(replace(TOY, name="mico"))
    with pytest.raises(ValueError, match="metric must be a Metric record, got str"):
        tabular.register_metric("mico")  # type: ignore[arg-type]
    for name in ("mico", "worst_case"):
        with pytest.raises(ValueError, match=f"'{name}' is not a metric that register_metric"):
            tabular.unregister_metric(name)


def test_built_in_records_carry_the_name_they_are_found_by() -> None:
    assert list(METRICS) == [METRICS[name].name for name in METRICS]
    assert len(METRICS) == 5 and "revised, mico" in repr(METRICS)
    assert [name for name in METRICS if not METRICS[name].needs_policy] == [
        "bisimulation",
        "lax_bisimulation",
    ]


def test_every_public_name_loads() -> None:
    assert set(tabular._HOMES) | {"examples"} == set(tabular.__all__)
    assert all(getattr(tabular, name) is not None for name in tabular.__all__)
    assert set(tabular.__all__) <= set(dir(tabular))
    with pytest.raises(AttributeError, match=r"'revbis.tabular' has no attribute 'nonsense'"):
        _ = tabular.nonsense  # type: ignore[attr-defined]
