"""Exact bisimulation metrics on a finite MDP: an example, a file, or a Gymnasium environment."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from revbis.cli.console import print_table, solver_bar
from revbis.io.files import new_folder
from revbis.io.text import line_width, table_width
from revbis.tabular.registry import ALL, BUILT_IN
from revbis.tabular.settings import SolveSettings, Source

if TYPE_CHECKING:
    from revbis.tabular import FiniteMDP, MetricResult

Level = Literal["state", "state_action"]
_NAMES = f"{{{','.join((*BUILT_IN, ALL))}}}"
_OUT = Path("revbis-out")
_PRINT_UP_TO = 8
_PAIRS_SHOWN = 10
_MOST_DIGITS, _LEAST_DIGITS = 6, 2


@dataclass(frozen=True)
class SolveFlags(SolveSettings):
    """The settings, with the metrics' names in the help text."""

    metric: Annotated[str, tyro.conf.arg(metavar=_NAMES)] = SolveSettings.metric
    """The metric, or all of them."""


SourceFlags = Annotated[Source, tyro.conf.arg(name="")]
Settings = Annotated[SolveFlags, tyro.conf.arg(name="")]


def solve(
    source: SourceFlags,
    settings: Settings,
    level: Level = "state",
    origin: int = 0,
    out: Path = _OUT,
) -> None:
    """Solves one metric, or all of them; writes distances and pictures.

    Examples: revbis tabular solve --example toy --metric revised --gamma 0.9;
    revbis tabular solve --gym FrozenLake-v1 --metric all; revbis tabular solve --mdp mine.npz.

    Args:
        source: Where the MDP comes from.
        settings: What to solve.
        level: Distances of states, or of state-action pairs (for metrics of a policy).
        origin: The state whose distances the map on a grid shows.
        out: Folder for a .npz, a .csv and a .png file for each metric.
    """
    from revbis.tabular import jobs

    names = jobs.chosen_metrics(settings.metric, level)
    mdp, policy = jobs.load_mdp(source, settings.gamma)
    jobs.check_origin(mdp, origin)
    rows, results, files = [], [], []
    with new_folder(out):
        for result, seconds in jobs.solve_each(names, mdp, policy, settings, solver_bar, level):
            name = jobs.file_name(source, result)
            endings = jobs.write(result, origin, out / name, source.name)
            if not jobs.has_matrix(result):
                print(
                    f"{name}: the {result.n} × {result.n} matrix is not written; the .npz holds an "
                    "exact embedding and the self-distances",
                    file=sys.stderr,
                )
            results.append(result)
            rows.append(jobs.metric_row(result, seconds))
            files.append(f"{name} ({', '.join(endings)})")
    print_table(_title(source, mdp, settings), rows, spare=["iterations"])
    if results[0].n <= _PRINT_UP_TO:
        for result in results:
            _print_matrix(result)
    _print_files(out, files)


def values(
    source: SourceFlags,
    settings: Settings,
    level: Level = "state",
    target_gamma: float | None = None,
    out: Path = _OUT,
) -> None:
    """Bounds value gaps by a metric, and sets the bounds beside the true gaps.

    Metrics of a policy bound gaps of its values, |V(s) − V(t)|, or of Q between state-action pairs;
    bisimulation and lax bisimulation bound gaps of optimal values. Where the values look further
    ahead than the metric (--c below --gamma), the bound has an additional term, and the output
    explains it. Prints how tight the bounds are and the pairs with the largest gaps. Exits with 1
    if a bound should ever be violated.

    Examples: revbis tabular values --example rooms --metric all;
    revbis tabular values --example delay --gamma 0.99 --c 0.5.

    Args:
        source: Where the MDP comes from.
        settings: What to solve.
        level: Gaps of V between states, or of Q between state-action pairs.
        target_gamma: Discount factor of the values; --gamma when not given.
        out: Folder for a .csv file for each metric: a row for each pair, at most 100,000.
    """
    from revbis.io import schema
    from revbis.tabular import jobs
    from revbis.tabular.bounds import value_gaps

    target = settings.gamma if target_gamma is None else target_gamma
    schema.discount(target, "gamma" if target_gamma is None else "--target-gamma")
    names = jobs.chosen_metrics(settings.metric, level)
    mdp, policy = jobs.load_mdp(source, settings.gamma)
    gaps, files = [], []
    with new_folder(out):
        for result, _ in jobs.solve_each(names, mdp, policy, settings, solver_bar, level):
            gaps.append(value_gaps(result, target))
            name = jobs.file_name(source, result, target) + "-values"
            endings = jobs.write_gaps(gaps[-1], out / name)
            files.append(f"{name} ({', '.join(endings)})")
    title = f"{_title(source, mdp, settings)}, values at γ = {target:g}"
    print_table(title, [jobs.gaps_row(each) for each in gaps], spare=["largest bound"])
    for each in gaps:
        rule = f"{each.rule.result.metric}: {each.rule.explanation}"
        print("\n" + textwrap.fill(rule, line_width()))
        among = "" if each.complete else f" in a sample of {len(each.gap):,} pairs"
        print_table(f"largest gaps{among}", jobs.pair_rows(each, _PAIRS_SHOWN))
    _print_files(out, files)
    if not all(each.holds for each in gaps):
        sys.exit(1)


def aggregate(source: SourceFlags, settings: Settings, eps: float = 0.1, out: Path = _OUT) -> None:
    """Merges states that a metric shows to have similar values; certifies what that costs.

    Each class is a representative and states whose values are within --eps of its value, according
    to the metric's bound on value gaps. Prints the number of classes, a certified bound on the
    error of the smaller MDP's values, |V(s) − V̄(class of s)|, and the true error beside it.

    Examples: revbis tabular aggregate --example rooms --eps 0.1;
    revbis tabular aggregate --gym FrozenLake-v1 --metric bisimulation --eps 0.05;
    revbis tabular solve --mdp revbis-out/rooms-11-revised-gamma-0.9-eps-0.1.npz solves the result.

    Args:
        source: Where the MDP comes from.
        settings: What to solve.
        eps: Largest bound on the value gap between a state and the representative of its class.
        out: Folder for a .csv file (classes), a .npz file (the smaller MDP), for grids a picture.
    """
    from revbis.tabular import aggregation, jobs

    aggregation.check_eps(eps)
    names = jobs.chosen_metrics(settings.metric, mergeable=True)
    mdp, policy = jobs.load_mdp(source, settings.gamma)
    rows, files = [], []
    with new_folder(out):
        for result, _ in jobs.solve_each(names, mdp, policy, settings, solver_bar):
            merged = aggregation.aggregate(result, eps)
            name = f"{jobs.file_name(source, result, settings.gamma)}-eps-{eps:g}"
            endings = jobs.write_classes(result, merged, out / name, source.name)
            rows.append(jobs.classes_row(result, merged))
            files.append(f"{name} ({', '.join(endings)})")
    print_table(f"{_title(source, mdp, settings)}, ε = {eps:g}", rows)
    _print_files(out, files)


def bounds(source: SourceFlags, gamma: float = 0.9, c: float = 0.5, tol: float = 1e-8) -> None:
    """Tests every inequality of the theory on an MDP; prints which ones hold, with their margin.

    Among them: MICo and the revised metric are (n(x) + n(y))/2 + ‖e(x) − e(y)‖² for some points e;
    the margin is then the smallest eigenvalue of the points' Gram matrix. Exits with 1 if a theorem
    should ever fail.

    Args:
        source: Where the MDP comes from.
        gamma: Discount factor, in [0, 1).
        c: Coefficient of the weighted form, in [0, 1).
        tol: Certified error of the metrics that are compared.
    """
    from revbis.tabular import jobs
    from revbis.tabular.theorems import check_theorems

    mdp, policy = jobs.load_mdp(source, gamma)
    with solver_bar("metrics", tol) as on_iteration:
        theorems = check_theorems(mdp, policy, gamma, c=c, tol=tol, progress=on_iteration)
    proved = [each for each in theorems if each.proved]
    others = [each for each in theorems if not each.proved]
    title = f"{_describe(source, mdp)}, γ = {gamma:g}, c = {c:g}"
    print_table(f"{title}: theorems", [jobs.theorem_row(each) for each in proved])
    print_table("not theorems: true on some MDPs only", [jobs.theorem_row(each) for each in others])
    if not all(each.holds for each in proved):
        sys.exit(1)


def horizons(
    source: SourceFlags,
    gammas: tuple[float, ...] = (0.0, 0.5, 0.8, 0.9, 0.95, 0.99),
    weighted: bool = False,
    tol: float = 1e-6,
    level: Level = "state",
    origin: int = 0,
    out: Path = _OUT,
) -> None:
    """Shows the revised metric as its horizon grows, all horizons from one solve.

    The laws of the reward at each lag do not depend on the discount. They are solved once, and the
    metric is read from them at each discount.

    Examples: revbis tabular horizons --example rooms;
    revbis tabular horizons --example delay --gammas 0.5 0.9 0.99 --weighted.

    Args:
        source: Where the MDP comes from.
        gammas: The discounts, each in [0, 1): rewards k steps ahead have weight γ^k.
        weighted: Read the discounts as coefficients c: rewards k steps ahead have weight (1−c)c^k.
        tol: Target error of every distance; the certified error is printed.
        level: Distances of states, or of state-action pairs.
        origin: The state whose distances the maps on a grid show.
        out: Folder for a .npz file (all distances) and a .png file.
    """
    from revbis.io import schema
    from revbis.io.machine import ensure_fits
    from revbis.tabular import jobs
    from revbis.tabular.laws import reward_laws

    if not gammas:
        raise ValueError("--gammas is empty: give at least one discount")
    discounts = [schema.discount(each, f"--gammas[{i}]") for i, each in enumerate(gammas)]
    mdp, policy = jobs.load_mdp(source, max(discounts))
    jobs.check_origin(mdp, origin)
    n = mdp.n_states if level == "state" else len(mdp.state_actions)
    what = f"{len(discounts)} matrices of {n} × {n} distances"
    ensure_fits(3 * 8 * n**2 * len(discounts), what, "use fewer discounts or states")
    laws = reward_laws(mdp, policy, max(discounts), tol=tol, level=level)
    readings = [laws.distance(c=each) if weighted else laws.distance(each) for each in discounts]
    with new_folder(out):
        name = jobs.horizons_name(source, readings)
        endings = jobs.write_horizons(readings, origin, out / name, source.name)
    title = f"{_describe(source, mdp)}: revised, {laws.n_lags} lags of {len(laws.thresholds)}"
    rows = [jobs.horizon_row(each, laws.value(each.discount).values) for each in readings]
    print_table(f"{title} thresholds, solved once", rows, spare=["lags read", "mean self"])
    _print_files(out, [f"{name} ({', '.join(endings)})"])


COMMANDS: dict[str, Callable[..., None]] = {
    "solve": solve,
    "values": values,
    "aggregate": aggregate,
    "bounds": bounds,
    "horizons": horizons,
}


def _describe(source: Source, mdp: FiniteMDP) -> str:
    actions = "1 action" if mdp.n_actions == 1 else f"{mdp.n_actions} actions"
    return f"{source.label}: {mdp.n_states} states, {actions}"


def _title(source: Source, mdp: FiniteMDP, settings: SolveSettings) -> str:
    weight = "" if settings.c is None else f", c = {settings.c:g}"
    return f"{_describe(source, mdp)}, γ = {settings.gamma:g}{weight}"


def _print_matrix(result: MetricResult) -> None:
    """The distances with as many digits as the width allows; not at all where that is too few."""
    from revbis.tabular.jobs import matrix_rows

    for digits in range(_MOST_DIGITS, _LEAST_DIGITS - 1, -1):
        rows = matrix_rows(result, digits)
        if table_width(rows) <= line_width():
            print_table(f"\n{result.metric}", rows)
            return


def _print_files(folder: Path, files: list[str]) -> None:
    print("\n".join(["", f"written to {folder}/:", *(f"  {line}" for line in files)]))
