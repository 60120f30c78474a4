"""Exact bisimulation metrics on a finite MDP: an example, a file, or a Gymnasium environment."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from revbis.commands.console import print_table, solver_bar
from revbis.commands.tables import line_width, table_width
from revbis.files import new_folder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from revbis.tabular import FiniteMDP, MetricResult
    from revbis.tabular.statements import Statement

    Array = NDArray[np.float64]

Metric = Literal["revised", "mico", "pi_bisimulation", "bisimulation", "lax_bisimulation", "all"]
ExampleName = Literal["toy", "toy-printed", "grid", "rooms", "garnet", "delay"]
Solver = Literal[
    "auto",
    "doubling",
    "jacobi",
    "low_rank",
    "in_place",
    "pointer_doubling",
    "gather",
    "policy_iteration",
]
_PRINT_UP_TO = 8
_MOST_DIGITS, _LEAST_DIGITS = 6, 2
_DEFAULT_SIZES = {"grid": 8, "rooms": 11, "garnet": 100, "delay": 20}


@dataclass(frozen=True)
class Source:
    """Where the MDP comes from: give one of example, mdp and gym."""

    example: ExampleName | None = None
    """A built-in MDP: the paper's toy with the rewards it states (toy) or those that give its
    printed numbers (toy-printed), an open grid, a grid with four rooms, a random MDP (garnet), two
    chains with a delayed reward (delay)."""
    mdp: Path | None = None
    """An .npz: what FiniteMDP.save wrote, or arrays P (S,A,S), R (S,A) and optionally policy."""
    gym: str | None = None
    """A Gymnasium id with a transition table, such as FrozenLake-v1."""
    policy: str = "own"
    """own (the example's or the file's; uniform if it has none), uniform, optimal, or a .npy file
    with (S,A) probabilities or (S,) actions."""
    size: int | None = None
    """Size of the example: side of a grid, states of a garnet, steps of a delay."""
    slip: float = 0.2
    """Probability that a move on a grid goes astray."""
    seed: int = 0
    """Seed of a garnet."""


def solve(
    source: Annotated[Source, tyro.conf.arg(name="")],
    metric: Metric = "revised",
    gamma: float = 0.9,
    c: float | None = None,
    tol: float = 1e-6,
    level: Literal["state", "state_action"] = "state",
    solver: Solver = "auto",
    origin: int = 0,
    out: Path = Path("revbis-out"),
) -> None:
    """Solves one metric, or all of them; writes distances and pictures.

    Examples: revbis tabular solve --example toy --metric revised --gamma 0.9;
    revbis tabular solve --gym FrozenLake-v1 --metric all; revbis tabular solve --mdp mine.npz.

    Args:
        source: Where the MDP comes from.
        metric: The metric, or all of them.
        gamma: Discount factor, in [0, 1).
        c: Weighted form: weights 1−c on the reward gap and c on the next-state term.
        tol: Wanted error of every distance; the certified one is printed.
        level: Distances of states, or of state-action pairs (revised, mico, pi_bisimulation).
        solver: How; auto chooses.
        origin: The state whose distances the map on a grid shows.
        out: Folder for the results: a .npz, a .csv and a .png for each metric, named after the
            MDP, the metric and the discount.
    """
    from revbis import tabular

    mdp, policy = _load(source, gamma)
    _check_origin(mdp, origin)
    names = list(tabular.METRICS) if metric == "all" else [metric]
    if level == "state_action" and metric == "all":
        names = ["revised", "mico", "pi_bisimulation"]
    rows, results, written = [], [], []
    with new_folder(out):
        for name in names:
            start = time.perf_counter()
            with solver_bar(name, tol) as progress:
                result = tabular.solve(name, mdp, policy, gamma, tol, c, level, solver, progress)
            seconds = time.perf_counter() - start
            results.append(result)
            rows.append(_summary(result, seconds))
            written.append(_write(result, origin, out, source))
    print_table(f"{_describe(source, mdp)}, γ = {gamma:g}", rows, spare=["iterations"])
    if results[0].n <= _PRINT_UP_TO:
        for result in results:
            _print_matrix(result)
    print("\n".join(["", f"written to {out}/:", *(f"  {line}" for line in written)]))


def bounds(
    source: Annotated[Source, tyro.conf.arg(name="")],
    gamma: float = 0.9,
    c: float = 0.5,
    tol: float = 1e-8,
) -> None:
    """Tests every inequality of the theory on an MDP and prints which hold, with what slack.

    Exits with 1 if a theorem should ever fail.

    Args:
        source: Where the MDP comes from.
        gamma: Discount factor, in [0, 1).
        c: Coefficient of the weighted form, in [0, 1).
        tol: Certified error of the metrics that are compared.
    """
    from revbis.tabular.statements import check_statements

    mdp, policy = _load(source, gamma)
    with solver_bar("metrics", tol) as progress:
        statements = check_statements(mdp, policy, gamma, c=c, tol=tol, progress=progress)
    title = f"{_describe(source, mdp)}, γ = {gamma:g}, c = {c:g}"
    theorems = [s for s in statements if s.theorem]
    others = [s for s in statements if not s.theorem]
    print_table(f"{title}: theorems", [_statement_row(s) for s in theorems])
    print_table("not theorems: true on some MDPs only", [_statement_row(s) for s in others])
    if not all(s.holds for s in theorems):
        sys.exit(1)


COMMANDS: dict[str, Callable[..., None]] = {"solve": solve, "bounds": bounds}


def _load(source: Source, gamma: float) -> tuple[FiniteMDP, Array]:
    """The MDP and the policy that the flags name."""
    from revbis.tabular import FiniteMDP, optimal_policy
    from revbis.tabular.mdp import as_policy
    from revbis.tabular.npz import read_npz

    given = [x is not None for x in (source.example, source.mdp, source.gym)]
    if sum(given) != 1:
        raise ValueError("give one of --example, --mdp and --gym")
    own: Array | None = None
    if source.example is not None:
        mdp, own = _example(source)
    elif source.mdp is not None:
        mdp = FiniteMDP.load(source.mdp)
        own = read_npz(source.mdp).get("policy")
    else:
        mdp = FiniteMDP.from_gymnasium(source.gym)
    if source.policy == "optimal":
        return mdp, optimal_policy(mdp, gamma)[1]
    if source.policy == "uniform" or (source.policy == "own" and own is None):
        return mdp, mdp.uniform_policy()
    if source.policy != "own":
        own = _policy_file(source.policy)
    assert own is not None
    return mdp, as_policy(mdp, own)


def _policy_file(path: str) -> Array:
    from revbis.tabular.npz import read_npy

    try:
        return read_npy(path)
    except FileNotFoundError:
        raise ValueError(
            f"--policy must be own, uniform, optimal or a .npy file; there is no file {path!r}"
        ) from None


def _example(source: Source) -> tuple[FiniteMDP, Array]:
    from revbis.tabular import examples

    size = _size(source)
    match source.example:
        case "toy":
            return examples.toy()
        case "toy-printed":
            return examples.toy("printed")
        case "grid":
            return examples.grid_world(size, slip=source.slip)
        case "rooms":
            return examples.four_rooms(size, slip=source.slip)
        case "garnet":
            return examples.garnet(size, branching=min(size, 5), seed=source.seed)
        case _:
            return examples.delay_chain(size)


def _size(source: Source) -> int:
    """The size asked for, or the example's own; 0 for the toys, which have none."""
    if source.size is None:
        return _DEFAULT_SIZES.get(source.example or "", 0)
    from revbis import checks

    return checks.whole(source.size, "--size", 1)


def _describe(source: Source, mdp: FiniteMDP) -> str:
    name = source.example or source.gym or source.mdp
    return f"{name}: {mdp.n_states} states, {mdp.n_actions} actions"


def _check_origin(mdp: FiniteMDP, origin: int) -> None:
    if not 0 <= origin < mdp.n_states:
        raise ValueError(f"--origin must be a state, 0 to {mdp.n_states - 1}, got {origin}")


def _summary(result: MetricResult, seconds: float) -> dict[str, str]:
    import numpy as np

    from revbis.tabular.output import MATRIX_UP_TO

    shown = np.random.default_rng(0).integers(result.n, size=(2, 100_000))
    sampled = result.pairs(*shown) if result.n > MATRIX_UP_TO else result.matrix()
    rank = "" if result.rank is None else f" (rank {result.rank})"
    return {
        "metric": result.metric,
        "error bound": f"{result.error_bound:.1e}",
        "solver": result.solver + rank,
        "iterations": str(result.iterations),
        "seconds": f"{seconds:.2f}",
        "mean distance": f"{float(sampled.mean()):.4g}",
        "largest": f"{float(sampled.max()):.4g}",
        "largest self": f"{float(result.self_distance().max()):.4g}",
    }


def _write(result: MetricResult, origin: int, out: Path, source: Source) -> str:
    """Writes a metric's files; returns their names in short."""
    from revbis.tabular.output import MATRIX_UP_TO, write

    name = _file_name(source, result)
    endings = write(result, origin, out / name, _mdp_name(source))
    if result.n > MATRIX_UP_TO:
        print(
            f"{name}: the {result.n} × {result.n} matrix is not written; the .npz holds an exact "
            "embedding and the self-distances",
            file=sys.stderr,
        )
    return f"{name} ({', '.join(endings)})"


def _file_name(source: Source, result: MetricResult) -> str:
    """Says all that the distances depend on, so that nothing else is written over."""
    parts = [_mdp_name(source)]
    if source.policy != Source.policy and result.policy is not None:
        is_word = source.policy in ("uniform", "optimal")
        parts.append(source.policy if is_word else _name_of_file(source.policy))
    parts.append(result.metric)
    if result.level != "state":
        parts.append(result.level)
    c, gamma = result.c, result.gamma
    parts.append(f"gamma-{_digits(gamma)}" if c is None else f"c-{_digits(result.discount)}")
    return re.sub(r"[^\w.+-]+", "-", "-".join(parts))


def _mdp_name(source: Source) -> str:
    parts = [source.example or source.gym or _name_of_file(source.mdp or "")]
    if source.example in _DEFAULT_SIZES:
        parts.append(str(_size(source)))
    if source.example in ("grid", "rooms") and source.slip != Source.slip:
        parts.append(f"slip-{_digits(source.slip)}")
    if source.example == "garnet" and source.seed != Source.seed:
        parts.append(f"seed-{source.seed}")
    return "-".join(parts)


def _name_of_file(path: str | Path) -> str:
    """A file's name, with a few digits of its content: files in two folders may share a name."""
    from revbis.files import digest

    return f"{Path(path).stem}-{digest(Path(path))[:6]}"


def _digits(number: float) -> str:
    """A number with every digit that tells it from another."""
    return f"{float(number)}".removesuffix(".0")


def _statement_row(statement: Statement) -> dict[str, str]:
    holds = "yes" if statement.holds else ("NO" if statement.theorem else "no")
    return {"statement": statement.text, "holds": holds, "slack": f"{statement.slack:.2e}"}


def _print_matrix(result: MetricResult) -> None:
    """The distances with as many digits as the width allows; not at all where that is too few."""
    from revbis.tabular.output import row_names

    names = row_names(result)
    for digits in range(_MOST_DIGITS, _LEAST_DIGITS - 1, -1):
        rows = [
            {"": name} | {other: f"{x:.{digits}f}" for other, x in zip(names, row, strict=True)}
            for name, row in zip(names, result.matrix(), strict=True)
        ]
        if table_width(rows) <= line_width():
            print_table(f"\n{result.metric}", rows)
            return
