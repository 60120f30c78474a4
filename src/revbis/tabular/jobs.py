"""What `revbis tabular` does: sources, solving, rows of its tables, files."""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from revbis.io import schema
from revbis.io.files import atomic_file, atomic_write
from revbis.tabular import examples
from revbis.tabular.aggregation import Aggregation, class_value, value_loss
from revbis.tabular.mdp import FiniteMDP, as_policy
from revbis.tabular.pictures import draw_classes, draw_horizons, draw_metric
from revbis.tabular.readers import read_npy, read_npz
from revbis.tabular.registry import ALL, METRICS, OnIteration
from revbis.tabular.settings import SolveSettings, Source, digits, name_of_file
from revbis.tabular.solver import solve
from revbis.tabular.values import bounded_value, optimal_policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from revbis.tabular.bounds import ValueGaps
    from revbis.tabular.result import MetricResult
    from revbis.tabular.theorems import Theorem

Array = NDArray[np.float64]
Row = dict[str, str]
ShowProgress = Callable[[str, float], AbstractContextManager[OnIteration]]
"""Called as show_progress(metric, tol) around a solver; yields what the solver calls."""

MATRIX_UP_TO = 5000  # a low-rank result above is written as an embedding
_CSV_UP_TO = 1000
_EXAMPLES_WITH = {
    "size": ("grid", "rooms", "garnet", "delay"),
    "slip": ("grid", "rooms"),
    "seed": ("garnet",),
}


def load_mdp(source: Source, gamma: float) -> tuple[FiniteMDP, Array]:
    """The MDP and the policy; the optimal policy is that for `gamma`.

    Raises:
        ValueError: If not exactly one source is given, it cannot be read, or a flag is not for it.
    """
    if [source.example, source.mdp, source.gym].count(None) != 2:
        raise ValueError("give one of --example, --mdp and --gym")
    for flag, names in _EXAMPLES_WITH.items():
        if getattr(source, flag) != getattr(Source, flag) and source.example not in names:
            raise ValueError(f"--{flag} is for --example {', '.join(names)}; drop it")
    mdp, own = _load(source)
    if source.policy == "optimal":
        return mdp, optimal_policy(mdp, gamma)[1]
    if source.policy == "uniform" or (source.policy == "own" and own is None):
        return mdp, mdp.uniform_policy()
    if source.policy == "own":
        assert own is not None
        return mdp, as_policy(mdp, own)
    try:
        return mdp, as_policy(mdp, read_npy(source.policy))
    except FileNotFoundError:
        raise ValueError(
            "--policy must be own, uniform, optimal or a .npy file; there is no file "
            f"{source.policy!r}"
        ) from None


def _load(source: Source) -> tuple[FiniteMDP, Array | None]:
    """The MDP, and the policy that comes with it."""
    if source.mdp is not None:
        return FiniteMDP.load(source.mdp), read_npz(source.mdp).get("policy")
    if source.gym is not None:
        return FiniteMDP.from_gymnasium(source.gym), None
    size = source.example_size
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
        case "delay":
            return examples.delay_chain(size)
        case _:
            return examples.two_coins()


class Solved(NamedTuple):
    """A solved metric and the seconds it took."""

    result: MetricResult
    seconds: float


def chosen_metrics(name: str, level: str = "state", *, mergeable: bool = False) -> list[str]:
    """The metrics that a name stands for: one, or for "all" those that have the level.

    With `mergeable` only those count whose states can be aggregated.

    Raises:
        ValueError: For an unknown name, and for one metric whose states cannot be aggregated.
    """
    schema.choice(name, (*METRICS, ALL), "metric")
    if name != ALL:
        if mergeable and METRICS[name].unmergeable:
            raise ValueError(METRICS[name].unmergeable)
        return [name]
    records = [METRICS[each] for each in METRICS if level in METRICS[each].levels]
    return [each.name for each in records if not (mergeable and each.unmergeable)]


def solve_each(
    names: list[str],
    mdp: FiniteMDP,
    policy: NDArray[np.float64],
    settings: SolveSettings,
    show_progress: ShowProgress,
    level: str = "state",
) -> Iterator[Solved]:
    """Solves metrics one by one, as they are asked for."""
    for name in names:
        start = time.perf_counter()
        with show_progress(name, settings.tol) as on_iteration:
            result = solve(
                *(name, mdp, policy, settings.gamma, settings.tol, settings.c),
                level=level,
                solver=settings.solver,
                progress=on_iteration,
            )
        yield Solved(result, time.perf_counter() - start)


def check_origin(mdp: FiniteMDP, origin: int) -> None:
    """Refuses a state that the MDP does not have."""
    if not 0 <= origin < mdp.n_states:
        raise ValueError(f"--origin must be a state, 0 to {mdp.n_states - 1}, got {origin}")


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


def horizon_row(result: MetricResult, value: Array) -> Row:
    """A reading of the metric at one horizon, and the gaps of the values at that horizon."""
    distance = result.matrix()
    i, j = np.triu_indices(result.n, 1)
    gaps = result.reward_weight * np.abs(value[i] - value[j])
    symbol = "|ΔV|" if result.level == "state" else "|ΔQ|"
    heading = f"mean {symbol}" if result.c is None else f"mean (1−c){symbol}"
    return {
        "discount": digits(result.discount),
        "steps": f"{1 / (1 - result.discount):.4g}",
        "lags read": str(result.iterations),
        "error bound": f"{result.error_bound:.1e}",
        "mean distance": f"{float(distance.mean()):.4g}",
        "mean self": f"{float(np.diag(distance).mean()):.4g}",
        "mean ρ": f"{float(result.reduced().mean()):.4g}",
        heading: f"{gaps.sum() / max(len(gaps), 1):.4g}",
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


def theorem_row(theorem: Theorem) -> Row:
    """Whether an inequality holds."""
    holds = "yes" if theorem.holds else ("NO" if theorem.proved else "no")
    return {"statement": theorem.text, "holds": holds, "margin": f"{theorem.margin:.2e}"}


def file_name(source: Source, result: MetricResult, target_gamma: float | None = None) -> str:
    """A name that says all that the content depends on, so that nothing else is overwritten.

    The discount of the values, `target_gamma`, is part of it where the file is about values.
    """
    parts = _name_parts(source, result)
    c, gamma = result.c, result.gamma
    parts.append(f"gamma-{digits(gamma)}" if c is None else f"c-{digits(result.discount)}")
    if target_gamma is not None and target_gamma != result.discount:
        parts.append(f"target-{digits(target_gamma)}")
    return re.sub(r"[^\w.+-]+", "-", "-".join(parts))


def horizons_name(source: Source, readings: Sequence[MetricResult]) -> str:
    """The same for the readings of one metric at several discounts."""
    discounts = [digits(result.discount) for result in readings]
    parts = [
        *_name_parts(source, readings[0]),
        "horizons",
        "gamma" if readings[0].c is None else "c",
    ]
    return re.sub(r"[^\w.+-]+", "-", "-".join([*parts, *discounts]))


def _name_parts(source: Source, result: MetricResult) -> list[str]:
    parts = [source.name]
    if source.policy != Source.policy and result.policy is not None:
        is_word = source.policy in ("uniform", "optimal")
        parts.append(source.policy if is_word else name_of_file(source.policy))
    parts.append(result.metric)
    if result.level != "state":
        parts.append(result.level)
    return parts


def write(result: MetricResult, origin: int, path: Path, name: str) -> list[str]:
    """Writes `path` with .npz, .csv (up to 1000 rows) and .png appended; returns these endings.

    The .npz of a low-rank result above 5000 rows holds an exact embedding and the self-distances
    instead of the matrix. The map on a grid shows the distances from the state `origin`; `name` is
    that of the MDP.

    Raises:
        OSError: As when the disk is full, with the file's name.
    """
    arrays: dict[str, Any] = {
        "mdp": np.array(name),
        "metric": np.array(result.metric),
        "level": np.array(result.level),
        "gamma": np.array(result.gamma),
        "c": np.array(np.nan if result.c is None else result.discount),
        "error_bound": np.array(result.error_bound),
        "solver": np.array(result.solver),
        "iterations": np.array(result.iterations),
    }
    if has_matrix(result):
        arrays["matrix"] = result.matrix()
    else:
        exact = result.embedding()
        arrays |= {"embedding": exact.coordinates, "self_distance": exact.self_distances}
    with atomic_file(_with(path, ".npz")) as file:
        np.savez(file, allow_pickle=False, **arrays)
    endings = [".npz"]
    if result.n <= _CSV_UP_TO:
        labels, matrix = row_names(result), result.matrix()
        rows = ([label, *_exact(row)] for label, row in zip(labels, matrix, strict=True))
        _write_csv(_with(path, ".csv"), ["", *labels], rows)
        endings.append(".csv")
    draw_metric(result, bounded_value(result, result.gamma), origin, _with(path, ".png"), name)
    return [*endings, ".png"]


def write_horizons(
    readings: Sequence[MetricResult], origin: int, path: Path, name: str
) -> list[str]:
    """Writes `path` with .npz (all matrices) and .png appended; returns these endings."""
    arrays: dict[str, Any] = {
        "mdp": np.array(name),
        "metric": np.array(readings[0].metric),
        "level": np.array(readings[0].level),
        "weighted": np.array(readings[0].c is not None),
        "discounts": np.array([result.discount for result in readings]),
        "error_bounds": np.array([result.error_bound for result in readings]),
        "matrices": np.stack([result.matrix() for result in readings]),
    }
    with atomic_file(_with(path, ".npz")) as file:
        np.savez(file, allow_pickle=False, **arrays)
    draw_horizons(readings, origin, _with(path, ".png"), name)
    return [".npz", ".png"]


def has_matrix(result: MetricResult) -> bool:
    """Whether the file holds the matrix: if it is small, or there is no smaller form."""
    return result.n <= MATRIX_UP_TO or result.rank is None


def write_gaps(gaps: ValueGaps, path: Path) -> list[str]:
    """Writes `path` with .csv appended: a row for each pair; returns this ending."""
    names = row_names(gaps.rule.result)
    columns = (gaps.distance, gaps.bound, gaps.gap)
    rows = (
        [names[i], names[j], *_exact(numbers)]
        for i, j, *numbers in zip(gaps.i, gaps.j, *columns, strict=True)
    )
    _write_csv(_with(path, ".csv"), ["first", "second", "distance", "bound", "gap"], rows)
    return [".csv"]


def write_classes(result: MetricResult, merged: Aggregation, path: Path, name: str) -> list[str]:
    """Writes `path` with .csv, .npz and for grids .png appended; returns these endings.

    The .csv has a row for each state. The .npz is the MDP on the classes with its policy, which
    `FiniteMDP.load` and `--mdp` read.
    """
    value, merged_value = bounded_value(result, result.gamma), class_value(merged, result.gamma)
    numbers = np.stack([value, merged_value[merged.labels]], axis=1)
    rows = (
        [state, label, merged.representatives[label], *_exact(row)]
        for state, (label, row) in enumerate(zip(merged.labels, numbers, strict=True))
    )
    header = ["state", "class", "representative", "value", "class_value"]
    _write_csv(_with(path, ".csv"), header, rows)
    merged.mdp.save(_with(path, ".npz"), merged.policy)
    if result.mdp.grid is None:
        return [".csv", ".npz"]
    draw_classes(result, merged, np.abs(numbers[:, 0] - numbers[:, 1]), _with(path, ".png"), name)
    return [".csv", ".npz", ".png"]


def row_names(result: MetricResult) -> list[str]:
    """The states, or the pairs as state:action."""
    if result.level == "state":
        return [str(s) for s in range(result.n)]
    return [f"{s}:{a}" for s, a in result.mdp.state_actions]


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows(rows)
    atomic_write(path, text.getvalue().encode())


def _exact(numbers: Iterable[float]) -> list[str]:
    """Numbers that are read back as they were."""
    return [repr(float(x)) for x in numbers]


def _with(path: Path, ending: str) -> Path:
    """The path with an ending after its whole name, which may hold dots of its own."""
    return path.with_name(path.name + ending)
