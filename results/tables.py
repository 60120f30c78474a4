"""The tables of the pages in results/, from the records beside them.

python results/tables.py     writes them anew: what is between <!-- NAME --> and <!-- end -->

Intervals and tests are those of revbis.analysis.stats, in representations those of Welch. "p, Holm"
is p of the test (elsewhere the sign-flip test), and the same with Holm's correction for the rows of
the column.
"""

import csv
import math
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).parent))

import compare

from revbis.analysis.stats import (
    Paired,
    area,
    holm,
    paired,
    published_return,
)
from revbis.analysis.tables import PUBLISHED, share_text
from revbis.representation.measures import rank_correlation

RESULTS = Path(__file__).parent
YARDSTICKS = "yardsticks.csv"
Seeds = Mapping[int, float]
Lines = Iterator[str]


def filled(text: str, tables: Mapping[str, Callable[[], Iterable[str]]]) -> str:
    """A page with its tables made anew; every table has one place in it.

    Raises:
        ValueError: If a table has no place, or a place no table.
    """
    places = re.findall(r"<!-- (\S+) -->\n.*?<!-- end -->", text, flags=re.DOTALL)
    if sorted(places) != sorted(tables):
        raise ValueError(f"the page has places for {places}, and the tables are {list(tables)}")
    for name, lines in tables.items():
        begin, end = f"<!-- {name} -->\n", "<!-- end -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = before + begin + "\n" + "\n".join(lines()) + "\n\n" + end + after
    return text


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Lines:
    """A table in Markdown."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def short(value: float, digits: int = 0, sign: bool = False) -> str:
    """A number as the pages write it: a real minus, and no 0 before the point."""
    rounded = round(value, digits) or 0.0  # no minus before 0
    text = f"{rounded:{'+' if sign and rounded else ''}.{digits}f}"
    return re.sub(r"^([+-]?)0\.", r"\1.", text).replace("-", "−")


def spread(seeds: Seeds) -> str:
    """Mean ± standard deviation."""
    values = list(seeds.values())
    return f"{short(float(np.mean(values)))} ± {short(float(np.std(values, ddof=1)))}"


def share(seeds: Seeds, task: str) -> str:
    """The mean return in percent of the published final one."""
    published = published_return(f"dmc:{task}")
    return share_text(None if published is None else mean(seeds.values()) / published)


def interval(found: Paired, digits: int = 0) -> str:
    """A difference and its interval, if there is one."""
    value = short(found.difference, digits, sign=True)
    if math.isnan(found.low):
        return f"{value} ({found.fewest} pairs)"
    ends = ", ".join(short(end, digits, sign=True) for end in (found.low, found.high))
    return f"{value} [{ends}]"


def p_text(p: float) -> str:
    """A p-value."""
    return "1" if p > 0.995 else "< .001" if p < 0.001 else short(p, 3 if p < 0.01 else 2)


def family(found: Sequence[Paired], digits: int = 0) -> list[str]:
    """Differences that are corrected together: interval, p and Holm's p of each."""
    corrected = holm([each.p_value for each in found])
    return [
        f"{interval(each, digits)}; {p_text(each.p_value)}, {p_text(p)}"
        for each, p in zip(found, corrected, strict=True)
    ]


def minus(scores: compare.Scores, other: str) -> dict[str, str]:
    """The difference of every method from one of them, a family."""
    names = [name for name in scores if name != other]
    found = [paired(scores[name], scores[other]) for name in names]
    return dict(zip(names, family(found), strict=True)) | {other: ""}


def finals(folder: str, task: str, column: str = "mean_return") -> dict[str, dict[int, float]]:
    """Final returns of the runs on a task below a folder, by method and seed."""
    found: dict[str, dict[int, float]] = {}
    for _, row in compare.rows(RESULTS / folder, "evaluations.csv"):
        if row["task"] == f"dmc:{task}":
            found.setdefault(row["method"], {})[int(row["seed"])] = float(row[column])
    return found


def areas(folder: str) -> compare.Scores:
    """Areas under the curves of returns, in percent of drqv2's mean on the task."""
    curves: dict[tuple[str, str, int], dict[int, float]] = {}
    for task, row in compare.rows(RESULTS / folder, "evaluations.csv"):
        points = curves.setdefault((row["method"], task, int(row["seed"])), {})
        points[int(row["frames"])] = float(row["mean_return"])
    scores: compare.Scores = {}
    for (method, task, seed), points in curves.items():
        height = area(np.array(list(points)), np.array(list(points.values())))
        scores.setdefault(method, {}).setdefault(task, {})[seed] = float(height)
    return compare.in_percent(scores)


def mean(values: Iterable[float]) -> float:
    """The mean of some numbers."""
    return float(np.mean(list(values)))


def returns(folder: str, task: str, others: Sequence[str], variants: bool = True) -> Lines:
    """Methods on a task: how far they came, and differences from some of them."""
    scores = finals(folder, task)
    trained = finals(folder, task, "train_mean_return") if variants else {}
    columns = [minus({name: {task: each} for name, each in scores.items()}, o) for o in others]
    head = ["method", "return", PUBLISHED]
    head += ["training minus evaluation variants"] if variants else []
    rows = []
    for name, seeds in sorted(scores.items(), key=lambda item: -mean(item[1].values())):
        row = [f"`{name}`", spread(seeds), share(seeds, task)]
        if variants:
            row.append(spread({seed: trained[name][seed] - value for seed, value in seeds.items()}))
        rows.append(row + [column[name] for column in columns])
    yield from table([*head, *(f"minus `{other}`; p, Holm" for other in others)], rows)


def pooled(folder: str, others: Sequence[str]) -> Lines:
    """Methods over all tasks, in percent of drqv2's mean on the task."""
    scores = compare.returns(RESULTS / folder)
    columns = [minus(scores, other) for other in others]
    means = {name: mean(mean(s.values()) for s in tasks.values()) for name, tasks in scores.items()}
    rows = (
        [f"`{name}`", short(means[name]), *(column[name] for column in columns)]
        for name in sorted(scores, key=lambda each: -means[each])
    )
    head = ["method", "mean, % of `drqv2`", *(f"minus `{other}`; p, Holm" for other in others)]
    yield from table(head, rows)


def groups(rows: Mapping[str, tuple[str, str]], columns: Mapping[str, compare.Scores]) -> Lines:
    """Pairs of methods, or of means of methods, by several scores; a column is a family."""
    cells = [
        family([paired(*(compare.side(scores, [name]) for name in pair)) for pair in rows.values()])
        for scores in columns.values()
    ]
    head = ["in % of `drqv2`", *(f"{name}; p, Holm" for name in columns)]
    yield from table(head, zip(rows, *cells, strict=True))


MEASURES = {
    "denoising_ood": ("DF", 2),
    "state_r2": ("state R²", 2),
    "value": ("ρ with ΔV", 2),
    "effective_rank": ("rank", 1),
}


def embeddings(folder: str, task: str) -> Lines:
    """Means of the yardsticks, φ's and beside it the critic's trunk's."""
    found: dict[str, dict[str, list[float]]] = {}
    for _, row in compare.rows(RESULTS / folder, YARDSTICKS):
        if row["task"] == f"dmc:{task}":
            values = found.setdefault(row["method"], {})
            for name, value in row.items():
                if name.startswith(("phi_", "trunk_")) and value:
                    values.setdefault(name, []).append(float(value))
    cells = [
        (f"{part}_{measure}", f"{text}: {'φ' if part == 'phi' else part}", digits)
        for measure, (text, digits) in MEASURES.items()
        for part in ("phi", "trunk")
    ]
    rows = (
        [f"`{method}`"]
        + [short(mean(values[name]), digits) if name in values else "" for name, _, digits in cells]
        for method, values in sorted(found.items(), key=lambda item: -mean(item[1]["trunk_value"]))
    )
    yield from table(["method", *(text for _, text, _ in cells)], rows)


def steps(rows: Sequence[tuple[str, str, str]], scores: Mapping[str, Seeds]) -> Lines:
    """What changes, and the difference in final return that it makes; one family."""
    found = [paired({"": dict(scores[a])}, {"": dict(scores[b])}) for _, a, b in rows]
    cells = (
        [what, f"`{name}` − `{other}`", text]
        for (what, name, other), text in zip(rows, family(found), strict=True)
    )
    yield from table(["what changes", "compared", "difference in return; p, Holm"], cells)


OFFLINE = {
    "phi_denoising_ood": "DF, evaluation noise",
    "phi_state_r2": "state R²",
    "phi_value": "ρ with ΔV",
}


def offline_difference(names: Sequence[str], measure: str, files: Sequence[str]) -> Paired:
    """Methods in pairs, trained offline; with files of several folders buffers are the unit."""
    scores = compare.offline(*(RESULTS / "offline" / file for file in files))[measure]
    sides = [compare.side(scores, list(names[i::2])) for i in (0, 1)]
    buffers = len({Path(file).parent for file in files}) > 1
    return paired(*(map(compare.by_buffer, sides) if buffers else sides))


def alone(rows: Mapping[str, Sequence[str]], *files: str) -> Lines:
    """What changes between objectives trained offline; a column is a family."""
    columns = [
        family([offline_difference(names, measure, files) for names in rows.values()], 2)
        for measure in OFFLINE
    ]
    head = ["what changes", *(f"{name}; p, Holm" for name in OFFLINE.values())]
    yield from table(head, zip(rows, *columns, strict=True))


def trained(file: str) -> Lines:
    """What every objective's embedding is after training, and before."""
    found: dict[str, list[dict[str, str]]] = {}
    for row in csv.DictReader((RESULTS / "offline" / file).read_text().splitlines()):
        found.setdefault(row["method"], []).append(row)
    names = {**OFFLINE, "phi_effective_rank": "rank (of 50)"}
    digits = {name: 1 if "rank" in name else 2 for name in names}

    def cells(rows: list[dict[str, str]], end: str = "") -> list[str]:
        return [short(mean(float(row[name + end]) for row in rows), digits[name]) for name in names]

    def key(method: str) -> float:
        return -mean(float(row["phi_denoising_ood"]) for row in found[method])

    rows = []
    for method in sorted(found, key=key):
        ends = [float(row["c"]) for row in found[method] if row["c"]]
        rows.append([f"`{method}`", *cells(found[method]), short(mean(ends), 2) if ends else ""])
    every = [row for each in found.values() for row in each]
    rows.append(["before training", *cells(every, "_untrained"), ".5"])
    yield from table(["objective", *names.values(), "c at the end"], rows)


def buffers(files: Sequence[str]) -> Lines:
    """The revised operator and the original on every buffer."""
    rows, methods = [], ("simsr-rev", "simsr")
    for file in files:
        measures = compare.offline(RESULTS / "offline" / file)
        pairs = []
        for name in OFFLINE:
            both = (measures[name][method][str(RESULTS / "offline" / file)] for method in methods)
            pairs.append(", ".join(short(mean(seeds.values()), 2) for seeds in both))
        seeds = len(next(iter(measures["phi_value"]["simsr"].values())))
        rows.append([str(Path(file).parent), str(seeds), *pairs])
    yield from table(["buffer", "seeds", *OFFLINE.values()], rows)


TASKS = ("cartpole_swingup", "walker_walk", "cheetah_run")
FAMILIES = ("mico-rev", "simsr-rev", "mico-rev-full", "simsr-rev-full", "energy-rev-full")
ONE_BUFFER = {
    "the revised operator, MICo: `mico-rev` − `mico`": ["mico-rev", "mico"],
    "c, in five families (25 pairs): `…` − `…-no-c`": [
        name + end for name in FAMILIES for end in ("", "-no-c")
    ],
    "only c, no ψ, MICo: `mico-rev-no-sa` − `mico`": ["mico-rev-no-sa", "mico"],
    "only ψ, no c, MICo: `mico-rev-no-c` − `mico`": ["mico-rev-no-c", "mico"],
    "complete instead of published (10 pairs): `…-rev-full` − `…-rev`": [
        "mico-rev-full", "mico-rev", "simsr-rev-full", "simsr-rev",
    ],
    "ROPE's operator (10 pairs): `…-rev-pairs` − `…-rev`": [
        "mico-rev-pairs", "mico-rev", "simsr-rev-pairs", "simsr-rev",
    ],
    "the released code's loss: `mico-rev-released` − `mico-rev`": ["mico-rev-released", "mico-rev"],
}  # fmt: skip
TEN_SEEDS = {
    "the revised operator: `simsr-rev` − `simsr`": ["simsr-rev", "simsr"],
    "only c, no ψ: `simsr-rev-no-sa` − `simsr`": ["simsr-rev-no-sa", "simsr"],
    "only ψ, no c: `simsr-rev-no-c` − `simsr`": ["simsr-rev-no-c", "simsr"],
    "c, given ψ: `simsr-rev` − `simsr-rev-no-c`": ["simsr-rev", "simsr-rev-no-c"],
    "ψ, given c: `simsr-rev` − `simsr-rev-no-sa`": ["simsr-rev", "simsr-rev-no-sa"],
}
CONVEX, SCALED, NO_C = (
    f"operator_or_scale:{name}" for name in ("simsr_convex", "simsr_scaled", "no_c_scaled")
)
SCALE = {
    "operator and scale: `simsr-rev` − `simsr`": ["simsr-rev", "simsr"],
    "only the scale: `simsr` with weights (1 − γ, γ) − `simsr`": [CONVEX, "simsr"],
    "only the scale: `simsr` with a running scale − `simsr`": [SCALED, "simsr"],
    "the operator, given the scale: `simsr-rev` − `simsr` with (1 − γ, γ)": ["simsr-rev", CONVEX],
    "ψ, given a running scale: `simsr-rev-no-c` − `simsr`, both scaled": [NO_C, SCALED],
}
NEW = [
    f"eight-buffers/{name}/offline.csv"
    for name in (
        *(f"cartpole_swingup-{seed}" for seed in (1, 2, 3)),
        *(f"walker_walk-{seed}" for seed in (1, 2, 3)),
        *(f"cheetah_run-{seed}" for seed in (1, 2)),
    )
]
OLD = [
    "gaussian-0.1/ten-seeds.csv",
    *(f"{name}/offline.csv" for name in ("gaussian-0.1-seed-2", "walker-0.1", "cheetah-0.1")),
]
FIVE_METHODS = [NEW[i] for i in (0, 1, 3, 6)]


def by_buffers() -> Lines:
    """The revised operator, buffers as observations: where it was found, and again."""
    sets = {"the four where it was found": OLD, "eight new ones": NEW, "all twelve": OLD + NEW}
    rows = []
    for text, files in sets.items():
        found = [offline_difference(("simsr-rev", "simsr"), name, files) for name in OFFLINE]
        rows.append([text, *(f"{interval(each, 2)}; {p_text(each.p_value)}" for each in found)])
    yield from table(["buffers", *(f"{name}; p" for name in OFFLINE.values())], rows)


PREDICTION = "zp+deepmdp"
METRICS = "mico+simsr+simsr-rev+simsr-rev-full+energy-rev-full"
GROUPS = {
    "prediction minus metrics": (PREDICTION, METRICS),
    "all seven minus `drqv2`": (f"{PREDICTION}+{METRICS}", "drqv2"),
    "`simsr-rev` minus `simsr`": ("simsr-rev", "simsr"),
    "`simsr-rev-full` minus `simsr-rev`": ("simsr-rev-full", "simsr-rev"),
}
PIXELS = {
    **{
        f"`{name}` minus `drqv2`": (name, "drqv2")
        for name in ("simsr-rev", "energy-rev-full", "zp", "simsr")
    },
    "`simsr-rev` minus `simsr`": ("simsr-rev", "simsr"),
    "mean of the four minus `drqv2`": ("zp+simsr+simsr-rev+energy-rev-full", "drqv2"),
}
ABLATION = (
    ("the published method instead of the original", "simsr-rev", "simsr"),
    ("only c: learned instead of (1, γ), no ψ", "simsr-rev-no-sa", "simsr"),
    ("only ψ: pairs instead of states, (1, γ)", "simsr-rev-no-c", "simsr"),
    ("c, given ψ", "simsr-rev", "simsr-rev-no-c"),
    ("ψ, given c", "simsr-rev", "simsr-rev-no-sa"),
    ("the complete form, learned c", "simsr-rev-full", "simsr-rev"),
    ("the complete form, (1, γ)", "simsr-rev-full-no-c", "simsr-rev-no-c"),
    ("c, given the complete form", "simsr-rev-full", "simsr-rev-full-no-c"),
    ("MICo: the published method instead of the original", "mico-rev", "mico"),
    ("the released code's objective instead of the equations", "mico-rev-released", "mico-rev"),
)


SCENARIOS = ("rooms", "rooms-off-policy", "rooms-noisy", "slip", "garnet", "garnet-off-policy")
USUAL = "3e-3, as above"
RATES = {
    USUAL: "exactness.csv",
    "1e-3": "controls/learning-rate-0.001/exactness.csv",
    "3e-4": "controls/learning-rate-0.0003/exactness.csv",
}
LENGTHS = {
    ("mico", "length 1 (its own)"): "exactness.csv",
    ("mico", "as they are"): "controls/normalisation-off/exactness.csv",
    ("mico-rev", "length 1 (its own)"): "exactness.csv",
    ("mico-rev", "as they are"): "controls/normalisation-off/exactness.csv",
    ("mico-rev-full", "length 1"): "controls/normalisation-on/exactness.csv",
    ("mico-rev-full", "as they are (its own)"): "exactness.csv",
}


def exact(file: str) -> dict[str, dict[str, dict[str, float]]]:
    """Means over seeds of what `revbis exactness` measured: by method, scenario and column."""
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for row in csv.DictReader((RESULTS / "exactness" / file).read_text().splitlines()):
        values = found.setdefault(row["method"], {}).setdefault(row["scenario"], {})
        for name in ("phi_spearman", "psi_spearman", "phi_error"):
            if row.get(name):
                values.setdefault(name, []).append(float(row[name]))
    return {
        method: {
            scenario: {name: mean(each) for name, each in values.items()}
            for scenario, values in scenarios.items()
        }
        for method, scenarios in found.items()
    }


def both(scenarios: Mapping[str, Mapping[str, float]]) -> list[str]:
    """ρ of φ and ψ in each scenario."""
    return [
        " / ".join(
            short(scenarios[each][name], 2)
            for name in ("phi_spearman", "psi_spearman")
            if name in scenarios[each]
        )
        for each in SCENARIOS
    ]


def lowest(scenarios: Mapping[str, Mapping[str, float]]) -> float:
    """The lowest ρ of φ."""
    return min(scenarios[each]["phi_spearman"] for each in SCENARIOS)


HEAD = [f"`{name}`" for name in SCENARIOS]


def correlations() -> Lines:
    """Every method's ρ with the exact metric."""
    found = exact("exactness.csv")
    rows = (
        [f"`{name}`", *both(found[name]), short(lowest(found[name]), 2)]
        for name in sorted(found, key=lambda each: -lowest(found[each]))
    )
    yield from table(["method", *HEAD, "lowest φ"], rows)


FACTORS = (
    *("controllable_relevant", "exogenous_relevant"),
    *("controllable_irrelevant", "exogenous_irrelevant"),
)


def kept(scenario: str) -> Lines:
    """What φ keeps of each factor, the most selective method first; ρ of φ with U."""
    found: dict[str, list[dict[str, str]]] = {}
    for row in csv.DictReader((RESULTS / "factors" / "exactness.csv").read_text().splitlines()):
        if row["scenario"] == scenario:
            found.setdefault(row["method"], []).append(row)

    def of(method: str, column: str) -> float:
        return mean(float(row[column]) for row in found[method])

    def selectivity(method: str) -> float:
        read = [of(method, f"{factor}_r2") for factor in FACTORS]
        return (read[0] + read[1] - read[2] - read[3]) / 2

    def of_factor(method: str, factor: str) -> str:
        read, share = (short(of(method, f"{factor}_{each}"), 2) for each in ("r2", "share"))
        return f"{read} ({share})"

    rows = [
        [
            f"`{method}`",
            *(of_factor(method, factor) for factor in FACTORS),
            short(selectivity(method), 2),
            short(of(method, "phi_spearman"), 2),
            str(len(found[method])),
        ]
        for method in sorted(found, key=lambda each: -selectivity(each))
    ]
    before = [mean(of(method, f"{factor}_r2_untrained") for method in found) for factor in FACTORS]
    rho = mean(of(method, "phi_spearman_untrained") for method in found)
    rows.append(["before training", *(short(each, 2) for each in before), "", short(rho, 2), ""])
    head = [factor.replace("_", ", ") for factor in FACTORS]
    yield from table(["method", *head, "selectivity", "ρ with U", "seeds"], rows)


LATER = ("laws", "laws-zp", "means", "means-pairs")
Claim = tuple[str, str, Callable[[str], dict[int, float]], str, float]


def kept_by_seed(scenario: str, method: str, part: str) -> dict[int, float]:
    """Of each seed: R² of a factor, or the mean of the relevant ones, the irrelevant, or both."""
    found = {}
    for row in csv.DictReader((RESULTS / "factors" / "exactness.csv").read_text().splitlines()):
        if (row["scenario"], row["method"]) == (scenario, method):
            read = {factor: float(row[f"{factor}_r2"]) for factor in FACTORS}
            relevant, irrelevant = (mean(list(read.values())[k : k + 2]) for k in (0, 2))
            parts = {"relevant": relevant, "irrelevant": irrelevant}
            parts["selectivity"] = relevant - irrelevant
            found[int(row["seed"])] = (read | parts)[part]
    return found


def claims() -> Iterator[Claim]:
    """What is predicted of four factors: number, quantity, its values, and what it should be."""

    def of(method: str, part: str) -> Callable[[str], dict[int, float]]:
        return lambda scenario: kept_by_seed(scenario, method, part)

    def gap(one: tuple[str, str], two: tuple[str, str]) -> Callable[[str], dict[int, float]]:
        def values(scenario: str) -> dict[int, float]:
            more, less = (kept_by_seed(scenario, *side) for side in (one, two))
            return {seed: more[seed] - less[seed] for seed in more.keys() & less.keys()}

        return values

    fitted = ("energy", "energy-rev-full", "energy-rev-full-no-c")
    for name in (*fitted, "mico-rev-full", "mico-rev-full-no-c"):
        yield "1", f"`{name}`: irrelevant", of(name, "irrelevant"), "<", 0.25
        yield "1", f"`{name}`: relevant", of(name, "relevant"), ">", 0.4
    yield "2", "`zp`: selectivity", of("zp", "selectivity"), ">", -0.15
    yield "2", "`zp`: selectivity", of("zp", "selectivity"), "<", 0.15
    one, two = ("deepmdp", "selectivity"), ("zp", "selectivity")
    yield "3", "selectivity, `deepmdp` − `zp`", gap(one, two), ">", 0.1
    one, two = ("simsr-rev-full", "irrelevant"), ("energy-rev-full", "irrelevant")
    yield "4", "irrelevant, `simsr-rev-full` − `energy-rev-full`", gap(one, two), ">", 0.2
    yield "5", "`simsr-rev`: selectivity", of("simsr-rev", "selectivity"), ">", 0.2
    yield "5", "`mico-rev`: selectivity", of("mico-rev", "selectivity"), "<", 0.1
    one, two = ("dbc", "exogenous_irrelevant"), ("dbc", "controllable_irrelevant")
    yield "6", "`dbc`: exogenous − controllable, irrelevant", gap(one, two), ">", 0.2
    yield "14", "`laws`: irrelevant", of("laws", "irrelevant"), "<", 0.25
    yield "14", "`laws`: relevant", of("laws", "relevant"), ">", 0.4
    one, two = ("laws-zp", "irrelevant"), ("laws", "irrelevant")
    yield "15", "irrelevant, `laws-zp` − `laws`", gap(one, two), ">", 0.2
    one, two = ("means", "selectivity"), ("laws", "selectivity")
    yield "16", "selectivity, `means` − `laws`", gap(one, two), ">", -0.15
    yield "16", "selectivity, `means` − `laws`", gap(one, two), "<", 0.15


def predictions() -> Lines:
    """Every prediction with what came, and whether an interval contradicts it."""
    rows = []
    for number, quantity, values, sign, bound in claims():
        texts, verdicts = [], []
        for scenario in ("factors", "factors-mixed"):
            seeds = values(scenario)
            found = paired({"": seeds}, {"": dict.fromkeys(seeds, 0.0)})
            texts.append(interval(found, 2))
            low, high = (found.low, found.high) if sign == ">" else (-found.high, -found.low)
            least = bound if sign == ">" else -bound
            verdicts.append("refuted" if high < least else "held" if low > least else "open")
        verdict = next(each for each in ("refuted", "open", "held") if each in verdicts)
        rows.append([number, quantity, f"{sign} {short(bound, 2)}", *texts, verdict])
    both = {}
    for scenario in ("factors", "factors-mixed"):
        exact = compare_exactness(scenario)
        both[scenario] = {name: selective for name, (selective, _) in exact.items()}
        rho = rank_correlation(*map(np.array, zip(*exact.values(), strict=True)))
        rows.append(_single("7", f"ρ of selectivity with exactness, `{scenario}`", rho, 0.6))
    names = both["factors"].keys() & both["factors-mixed"].keys()
    pairs = [(both["factors"][name], both["factors-mixed"][name]) for name in names]
    rho = rank_correlation(*map(np.array, zip(*pairs, strict=True)))
    rows.append(_single("8", "ρ of selectivity in `factors` and `factors-mixed`", rho, 0.8))
    head = ["prediction", "quantity", "predicted", "`factors`", "`factors-mixed`", "verdict"]
    yield from table(head, sorted(rows, key=lambda row: int(row[0])))


def _single(number: str, quantity: str, value: float, bound: float) -> list[str]:
    verdict = "held" if value > bound else "refuted"
    return [number, quantity, f"> {short(bound, 2)}", short(value, 2), "", verdict]


def compare_exactness(scenario: str) -> dict[str, tuple[float, float]]:
    """Mean selectivity and mean ρ of φ with U of every method that was there when predicted."""
    rho: dict[str, list[float]] = {}
    for row in csv.DictReader((RESULTS / "factors" / "exactness.csv").read_text().splitlines()):
        if row["scenario"] == scenario and row["method"] not in LATER:
            rho.setdefault(row["method"], []).append(float(row["phi_spearman"]))
    return {
        method: (mean(kept_by_seed(scenario, method, "selectivity").values()), mean(values))
        for method, values in rho.items()
    }


def kept_offline(task: str) -> Lines:
    """What φ keeps on a task with predictable numbers beside its state, and its ρ with U."""
    lines = (RESULTS / "factors" / f"offline-{task}.csv").read_text().splitlines()
    found: dict[str, list[dict[str, str]]] = {}
    for row in csv.DictReader(lines):
        found.setdefault(row["method"], []).append(row)
    everything = [row for rows in found.values() for row in rows]
    parts = ("state_r2", "gate_r2", "shadow_r2", "instance_r2", "true")

    def means(rows: list[dict[str, str]], name: str) -> list[str]:
        return [short(mean(float(row[name.format(part)]) for row in rows), 2) for part in parts]

    order = sorted(found, key=lambda name: -mean(float(row["phi_true"]) for row in found[name]))
    cells = [[f"`{name}`", *means(found[name], "phi_{}"), str(len(found[name]))] for name in order]
    cells.append(["before training", *means(everything, "phi_{}_untrained"), ""])
    told = [short(float(everything[0][f"task_{part}"]), 2) for part in parts[1:-1]]
    cells.append(["control: the true state", "1", *told, "", ""])
    head = ["method", "state (c, r)", "gate (e, r)", "shadow (c, i)", "instance (e, i)", "ρ with U"]
    yield from table([*head, "seeds"], cells)


def errors() -> Lines:
    """Errors of φ's distances, of methods that order states well in one scenario at least."""
    found = exact("exactness.csv")
    best = {name: max(s["phi_spearman"] for s in each.values()) for name, each in found.items()}
    sizes = {name: mean(s["phi_error"] for s in each.values()) for name, each in found.items()}
    rows = (
        [f"`{name}`", *(short(found[name][each]["phi_error"], 2) for each in SCENARIOS)]
        for name in sorted(found, key=lambda each: sizes[each])
        if best[name] > 0.8
    )
    yield from table(["method", *HEAD], rows)


def rates() -> Lines:
    """The published losses at three learning rates."""
    rows = []
    for method in ("simsr-rev", "mico-rev"):
        for rate, file in RATES.items():
            found = exact(file)[method]
            rows.append([f"`{method}`", rate, *both(found), short(lowest(found), 2)])
    rows.append(
        ["`simsr-rev`, scaled", USUAL, *both(exact("controls/exactness.csv")["controls:scaled"])]
    )
    rows[-1].append(short(lowest(exact("controls/exactness.csv")["controls:scaled"]), 2))
    yield from table(["method", "learning rate", *HEAD, "lowest φ"], rows)


def lengths() -> Lines:
    """MICo's methods with embeddings of length 1 and without."""
    rows = []
    for (method, what), file in LENGTHS.items():
        found = exact(file)[method]
        rows.append([f"`{method}`", what, *both(found), short(lowest(found), 2)])
    yield from table(["method", "embeddings", *HEAD, "lowest φ"], rows)


FACTORIAL = {
    "laws": ("laws", "each state"),
    "energy-rev-full-no-c": ("laws", "pairs"),
    "means": ("means", "each state"),
    "means-pairs": ("means", "pairs"),
}


def with_errors(scenarios: Mapping[str, Mapping[str, float]]) -> list[str]:
    """ρ and error of φ in each scenario."""
    names = ("phi_spearman", "phi_error")
    return [", ".join(short(scenarios[each][name], 2) for name in names) for each in SCENARIOS]


def factorial() -> Lines:
    """What is learned of the rewards, laws or means, and from what, states or pairs."""
    found = exact("exactness.csv")
    rows = [[f"`{name}`", *what, *with_errors(found[name])] for name, what in FACTORIAL.items()]
    yield from table(["method", "of rewards", "regression on", *HEAD], rows)


def long() -> Lines:
    """The complete methods with weights (1, γ) at γ = .99."""
    found = exact("gamma-0.99/exactness.csv")
    rows = (
        [f"`{name}`", *with_errors(found[name]), short(lowest(found[name]), 2)]
        for name in sorted(found, key=lambda each: -lowest(found[each]))
    )
    yield from table(["method", *HEAD, "lowest φ"], rows)


def horizons() -> Lines:
    """`laws`, trained once, beside methods trained for each c: ρ and error of φ."""
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    text = (RESULTS / "exactness" / "horizons.csv").read_text()
    for row in csv.DictReader(text.splitlines()):
        values = float(row["phi_spearman"]), float(row["phi_error"])
        found.setdefault((row["scenario"], row["method"], row["c"]), []).append(values)
    places = list(dict.fromkeys((scenario, c) for scenario, _, c in found))
    rows, seeds = [], min(map(len, found.values()))
    for method in dict.fromkeys(method for _, method, _ in found):
        cells = [np.mean(found[scenario, method, c], axis=0) for scenario, c in places]
        rows.append([f"`{method}`", *(f"{short(ρ, 2)}, {short(error, 2)}" for ρ, error in cells)])
    head = [f"method, {seeds} seed{'s' if seeds > 1 else ''}"]
    yield from table([*head, *(f"`{name}`, c = {c[1:]}" for name, c in places)], rows)


def ablation() -> Lines:
    """The parts of the methods on one task."""
    folders = ("noisy-state", "noisy-ablation")
    one, two = (finals(folder, "cartpole_swingup") for folder in folders)
    yield from steps(ABLATION, one | two)


def over_tasks() -> Lines:
    """From pixels: clean, with noise, and both."""
    names = {"pixels/clean": "clean", "pixels/gaussian": "with noise", "pixels": "both"}
    columns = {text: compare.returns(RESULTS / folder) for folder, text in names.items()}
    yield from groups(PIXELS, columns)


def of_noisy_state() -> Lines:
    """By final return and by area under the curve."""
    ends = {"final return": compare.returns(RESULTS / "noisy-state")}
    yield from groups(GROUPS, ends | {"area under the curve": areas("noisy-state")})


OPTIONS = (
    ("alternating", "zp"),
    ("alternating", "simsr-rev-full"),
    ("one-step", "simsr-rev-full"),
    ("alternating", "simsr-rev"),
    ("one-step", "simsr-rev"),
    ("alternating", "simsr"),
    ("balanced", "drqv2"),
    ("twice-the-encoder", "agent:twice_the_encoder:make"),
)


def with_a_step(task: str) -> Lines:
    """Objectives with a step of their own beside the same in balanced mode and drqv2."""
    usual = finals("noisy-state", task)
    rows, sides = [], []
    for folder, method in OPTIONS:
        seeds = finals(f"noisy-options/{folder}", task).get(method)
        if seeds is None:
            continue
        base = usual.get(method)
        name = method.partition(":")[2].partition(":")[0] or method
        rows.append([f"`{name}`", folder, str(len(seeds)), spread(seeds), share(seeds, task)])
        sides.append((seeds, base))
    against = [paired({"": dict(seeds)}, {"": usual["drqv2"]}) for seeds, _ in sides]
    for row, (seeds, base), text in zip(rows, sides, family(against), strict=True):
        same = "" if base is None else interval(paired({"": dict(seeds)}, {"": base}))
        row += [same, text]
    head = ["agent", "how", "seeds", "return", PUBLISHED, "minus the same in noisy-state"]
    yield from table([*head, "minus `drqv2` of noisy-state; p, Holm"], rows)


SINGLE = ("joint", "coefficient-discount", "coefficient-half", "unscaled-rewards")


def others() -> Lines:
    """Other settings of one objective, minus the preset."""
    task, method = "cartpole_swingup", "simsr-rev-full"
    usual = finals("noisy-state", task)[method]
    runs = [finals(f"noisy-options/{folder}", task)[method] for folder in SINGLE]
    found = family([paired({"": dict(seeds)}, {"": usual}) for seeds in runs])
    shares = [share(seeds, task) for seeds in runs]
    cells = zip(SINGLE, map(spread, runs), shares, found, strict=True)
    head = ["what changes", "return", PUBLISHED, "minus the preset, same seeds; p, Holm"]
    yield from table(head, cells)


def tenfold() -> Lines:
    """Rewards × 10 in the objective alone."""
    task = "cartpole_swingup"
    usual = finals("noisy-state", task)
    tens = finals("noisy-options/tenfold-rewards", task)
    names = {"simsr": "tenfold_rewards:simsr", "simsr-rev": "tenfold_rewards:simsr_rev"}
    scores = {f"{name} × 10": tens[key] for name, key in names.items()}
    rows = [("rewards × 10", f"{name} × 10", name) for name in names]
    rows += [("rewards × 10, beside no objective", f"{name} × 10", "drqv2") for name in names]
    yield from steps(rows, usual | scores)


PUBLIC = {  # MR.Q's public records: mean return at 25,000 and 50,000 agent steps
    "cartpole_swingup": ("795", "853"),
    "walker_walk": ("532", "891"),
    "cheetah_run": ("212", "648"),
    "reacher_hard": ("483", "806"),
}


def trained_agents() -> Lines:
    """The last evaluation of every run of MR.Q from state vectors."""
    rows = []
    for task, public in PUBLIC.items():
        last: dict[int, dict[str, str]] = {}
        for _, row in compare.rows(RESULTS / "mrq" / "vectors", "evaluations.csv"):
            if row["task"] == f"dmc:{task}":
                last[int(row["seed"])] = row
        steps = {f"{int(row['agent_steps']):,}" for row in last.values()}
        found = {seed: float(row["mean_return"]) for seed, row in last.items()}
        texts = ", ".join(short(found[seed]) for seed in sorted(found))
        share_of = share(found, task)
        rows.append([task, " and ".join(sorted(steps)), texts, spread(found), share_of, *public])
    head = ["task", "agent steps", "returns of seeds 1 to 3", "mean ± deviation", PUBLISHED]
    yield from table([*head, "public code at 25,000 steps", "at 50,000"], rows)


TRUE = {"phi": "φ", "psi": "ψ"}


def true_metric() -> Lines:
    """ρ with U and with value gaps, and state R², of trained agents: means over seeds."""
    rows = []
    lines = [row for _, row in compare.rows(RESULTS / "mrq" / "vectors", YARDSTICKS)]
    for task in PUBLIC:
        runs = [line for line in lines if line["task"] == f"dmc:{task}"]
        for name, shown in TRUE.items():
            values = {
                measure: [float(run[f"{name}_{measure}"]) for run in runs]
                for measure in ("true", "value", "state_r2")
            }
            each = ", ".join(short(value, 2) for value in values["true"])
            means = [short(mean(found), 2) for found in values.values()]
            rows.append([task, shown, means[0], each, *means[1:]])
    head = ["task", "embedding", "ρ with U", "of each seed", "ρ with ΔV", "state R²"]
    yield from table(head, rows)


BUDGETS = {"noisy": 80_000, "clean": 50_000}  # frames of a run
TEN = 10  # seeds; with fewer nothing is told as a difference
Groups = Sequence[Seeds]


class Contrast(NamedTuple):
    """A difference of means of independent groups, with Welch's 95% interval."""

    difference: float
    low: float
    high: float
    p: float

    @property
    def text(self) -> str:
        """The difference and its interval."""
        low, high = short(self.low, sign=True), short(self.high, sign=True)
        return f"{short(self.difference, sign=True)} [{low}, {high}]"


def contrast(more: Groups, less: Groups) -> Contrast:
    """The sum of the means of some groups minus that of others."""
    values = [np.array(list(seeds.values())) for seeds in (*more, *less)]
    signs = [1.0] * len(more) + [-1.0] * len(less)
    difference = sum(sign * each.mean() for sign, each in zip(signs, values, strict=True))
    parts = np.array([each.var(ddof=1) / len(each) for each in values])
    error = math.sqrt(parts.sum())
    counts = np.array([len(each) for each in values])
    freedom = parts.sum() ** 2 / (parts**2 / (counts - 1)).sum()
    reach = float(stats.t.ppf(0.975, freedom)) * error
    p = 2 * float(stats.t.sf(abs(difference) / error, freedom))
    return Contrast(float(difference), difference - reach, difference + reach, p)


def represented(setting: str, column: str = "mean_return") -> dict[str, dict[int, float]]:
    """Final returns of the finished runs of a setting, by what trained the encoders and seed."""
    found: dict[str, dict[int, float]] = {}
    for _, row in compare.rows(RESULTS / "representations" / setting, "evaluations.csv"):
        if int(row["frames"]) == BUDGETS[setting]:
            losses = Path(row["run"]).parts[1]
            found.setdefault(losses, {})[int(row["seed"])] = float(row[column])
    return {losses: seeds for losses, seeds in found.items() if len(seeds) > 1}


def heights(setting: str) -> dict[str, dict[int, float]]:
    """Areas under the curves of the same runs, divided by the frames: mean returns of training."""
    curves: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
    for _, row in compare.rows(RESULTS / "representations" / setting, "evaluations.csv"):
        if int(row["frames"]) <= BUDGETS[setting]:
            points = curves[Path(row["run"]).parts[1], int(row["seed"])]
            points[int(row["frames"])] = float(row["mean_return"])
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for (losses, seed), points in curves.items():
        if max(points) == BUDGETS[setting]:
            height = area(np.array(list(points)), np.array(list(points.values())))
            found[losses][seed] = float(height)
    return found


def losses_text(losses: str) -> str:
    """The losses as they are typed: `model laws`."""
    rest = losses.removeprefix("model-")
    return f"`{losses}`" if rest == losses else f"`model {rest}`"


def representations(setting: str) -> Lines:
    """What trains the encoders, how far the agents came, and how far they are from `model`.

    No difference is told below ten seeds.
    """
    columns = {"return": represented(setting)}
    if setting == "noisy":
        columns["on training variants"] = represented(setting, "train_mean_return")
    columns["mean of the curve"] = heights(setting)
    scores = columns["return"]
    told = [losses for losses, seeds in scores.items() if len(seeds) >= TEN]
    others = [losses for losses in told if losses != "model"] if "model" in told else []
    pairs = [(losses, "model") for losses in others]
    found = [contrasts(pairs, each) for each in columns.values()] if pairs else []
    rows = []
    for losses, seeds in sorted(scores.items(), key=lambda item: -mean(item[1].values())):
        row = [losses_text(losses), str(len(seeds)), share(seeds, TASKS[0])]
        row.append(f"{short(min(seeds.values()))} to {short(max(seeds.values()))}")
        row += [spread(each[losses]) for each in columns.values()]
        rows.append(row + [each.get((losses, "model"), "") for each in found])
    head = ["trained by", "seeds", PUBLISHED, "of single seeds", *columns]
    yield from table(head + [f"{name}: minus `model`; p, Holm" for name in columns if found], rows)


KEPT = {
    "true": ("ρ with U", 2),
    "state_r2": ("state R²", 2),
    "instance_r2": ("instance R²", 2),
    "shadow_r2": ("shadow R²", 2),
    "value": ("ρ with ΔV", 2),
    "effective_rank": ("rank", 1),
}


def represented_embeddings(setting: str) -> Lines:
    """What φ and ψ of trained agents keep, means over seeds."""
    found: dict[str, list[dict[str, str]]] = {}
    for _, row in compare.rows(RESULTS / "representations" / setting, YARDSTICKS):
        found.setdefault(Path(row["run"]).parts[1], []).append(row)
    rows = []
    for losses in sorted(found, key=lambda each: -mean(float(r["phi_true"]) for r in found[each])):
        for part, shown in TRUE.items():
            cells = [
                short(mean(float(row[f"{part}_{name}"]) for row in found[losses]), digits)
                for name, (_, digits) in KEPT.items()
            ]
            rows.append([losses_text(losses), shown, str(len(found[losses])), *cells])
    yield from table(["trained by", "of", "seeds", *(text for text, _ in KEPT.values())], rows)


# Number, what, groups that are added, groups that are subtracted, and where it should be.
Prediction = tuple[str, str, Sequence[str], Sequence[str], float, float]
FAR = math.inf
PREDICTED: tuple[Prediction, ...] = (
    ("1", "`model`, clean − noisy", ["clean/model"], ["noisy/model"], 50, FAR),
    (
        "2", "the same of `zp` − of `model`",
        ["clean/zp", "noisy/model"], ["noisy/zp", "clean/model"], 50, FAR,
    ),
    ("3", "`laws` − `zp`, noisy", ["noisy/laws"], ["noisy/zp"], 50, FAR),
    ("4", "`model` − `laws`, clean", ["clean/model"], ["clean/laws"], 50, FAR),
    *(
        ("5", f"`model` − `{name}`, {where}", [f"{where}/model"], [f"{where}/{name}"], 200, FAR)
        for name in ("simsr-rev-full", "simsr-rev") for where in BUDGETS
    ),
    ("6", "`model laws` − `model`, noisy", ["noisy/model-laws"], ["noisy/model"], 0, FAR),
    ("6", "`model laws` − `model`, clean", ["clean/model-laws"], ["clean/model"], -50, 50),
    *(
        (
            "7", f"`model simsr-rev-full` − `model`, {where}",
            [f"{where}/model-simsr-rev-full"], [f"{where}/model"], -50, 50,
        )
        for where in BUDGETS
    ),
    (
        "8", "`simsr-rev-full` − `simsr-rev`, noisy",
        ["noisy/simsr-rev-full"], ["noisy/simsr-rev"], 0, FAR,
    ),
)  # fmt: skip


def represented_predictions() -> Lines:
    """Every prediction with what came; "not yet" below ten seeds of all that it compares."""
    scores = {
        f"{setting}/{losses}": seeds
        for setting in BUDGETS
        for losses, seeds in represented(setting).items()
    }
    rows = []
    for number, what, more, less, least, most in PREDICTED:
        bound = f"> {short(least)}" if most == FAR else f"within {short(most)}"
        groups = [[scores.get(name, {}) for name in names] for names in (more, less)]
        if min(len(seeds) for each in groups for seeds in each) < TEN:
            rows.append([number, what, bound, "", "not yet"])
            continue
        one = contrast(*groups)
        verdict = "open"
        if least < one.low and one.high < most:
            verdict = "held"
        elif one.high < least or one.low > most:
            verdict = "refuted"
        rows.append([number, what, bound, one.text, verdict])
    yield from table(["", "difference of mean returns", "predicted", "came", "verdict"], rows)


PAPERS = {  # its Table 1, cheetah_run at 1M frames
    "drqv2": "691 ± 42",
    "mico": "483 ± 19",
    "mico-rev": "791 ± 26",
    "simsr": "767 ± 76",
    "simsr-rev": "848 ± 22",
}
CHEETAH_FRAMES = (50_000, 100_000, 150_000, 200_000, 250_000)
CHEETAH_PAIRS = (("mico-rev", "mico"), ("simsr-rev", "simsr"))


def cheetah_runs() -> Lines:
    """Every run: its returns on the way, and what its embeddings keep."""
    curves: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for _, row in compare.rows(RESULTS / "cheetah", "evaluations.csv"):
        curves[row["method"], row["seed"]][int(row["frames"])] = float(row["mean_return"])
    kept = {(r["method"], r["seed"]): r for _, r in compare.rows(RESULTS / "cheetah", YARDSTICKS)}
    rows = []
    for (method, seed), curve in sorted(curves.items()):
        names = ("trunk_state_r2", "trunk_value", "phi_state_r2")
        values = [kept[method, seed][name] for name in names]
        rows.append(
            [f"`{method}`", seed, *(short(curve[frames]) for frames in CHEETAH_FRAMES)]
            + [short(float(value), 2) if value else "–" for value in values]
        )
    head = ["method", "seed", *(f"{frames:,}" for frames in CHEETAH_FRAMES)]
    yield from table([*head, "trunk: state R²", "trunk: ρ with ΔV", "φ: state R²"], rows)


def cheetah_methods() -> Lines:
    """Mean returns at the end with t-intervals over seeds, beside the paper's."""
    scores = finals("cheetah", "cheetah_run")
    others = [name for name in PAPERS if name != "drqv2" and len(scores[name]) > 1]
    columns = contrasts([(name, "drqv2") for name in others], scores)
    rows = []
    for name, published in PAPERS.items():
        seeds, text = scores[name], "–"
        if len(seeds) > 1:
            one = stats.ttest_1samp(list(seeds.values()), 0).confidence_interval()
            text = f"{short(mean(seeds.values()))} [{short(one.low)}, {short(one.high)}]"
        rows.append([f"`{name}`", str(len(seeds)), text, share(seeds, "cheetah_run")])
        rows[-1] += [columns.get((name, "drqv2"), ""), published]
    head = ["method", "seeds", "return at 250,000 frames", PUBLISHED, "minus `drqv2`; p, Holm"]
    yield from table([*head, "the paper, 1M frames"], rows)


def cheetah_pairs() -> Lines:
    """The revised operators minus their originals."""
    scores = finals("cheetah", "cheetah_run")
    pairs = [pair for pair in CHEETAH_PAIRS if min(len(scores[name]) for name in pair) > 1]
    rows = [[f"`{a}` − `{b}`", text] for (a, b), text in contrasts(pairs, scores).items()]
    yield from table(["revised minus original", "difference in return; p, Holm"], rows)


def contrasts(
    pairs: Sequence[tuple[str, str]], scores: Mapping[str, Seeds]
) -> dict[tuple[str, str], str]:
    """Differences of methods, one family: Welch's interval, p and Holm's p."""
    found = [contrast([scores[a]], [scores[b]]) for a, b in pairs]
    corrected = holm([each.p for each in found])
    return {
        pair: f"{each.text}; {p_text(each.p)}, {p_text(p)}"
        for pair, each, p in zip(pairs, found, corrected, strict=True)
    }


DREAMER_FRAMES = (0, 10_000, 20_000, 30_000)


def dreamer() -> Lines:
    """Returns of Dreamer-v3 by frames, a row for each seed."""
    found: dict[int, dict[int, float]] = defaultdict(dict)
    for _, row in compare.rows(RESULTS / "dreamer", "evaluations.csv"):
        found[int(row["seed"])][int(row["frames"])] = float(row["mean_return"])
    rows = []
    for seed, by_frames in sorted(found.items()):
        last = mean(by_frames[frames] for frames in sorted(by_frames)[-3:])
        shown = [short(by_frames[frames]) for frames in DREAMER_FRAMES]
        rows.append([str(seed), *shown, short(last), share({seed: last}, "cartpole_swingup")])
    head = ["seed", "untrained", *(f"{frames:,}" for frames in DREAMER_FRAMES[1:])]
    yield from table([*head, "mean of the last three evaluations", PUBLISHED], rows)


TABLES: dict[str, dict[str, Callable[[], Iterable[str]]]] = {
    "noisy-state": {
        **{task: partial(returns, "noisy-state", task, ("drqv2", "zp")) for task in TASKS},
        "all-tasks": partial(pooled, "noisy-state", ("drqv2", "zp")),
        "groups": of_noisy_state,
        **{f"{task}-embeddings": partial(embeddings, "noisy-state", task) for task in TASKS},
    },
    "cheetah": {"methods": cheetah_methods, "pairs": cheetah_pairs, "runs": cheetah_runs},
    "dreamer": {"returns": dreamer},
    "exactness": {
        "correlations": correlations,
        "errors": errors,
        "rates": rates,
        "lengths": lengths,
        "factorial": factorial,
        "horizons": horizons,
        "long": long,
    },
    "factors": {
        **{name: partial(kept, name) for name in ("factors", "factors-mixed")},
        "predictions": predictions,
        **{task: partial(kept_offline, task) for task in ("cartpole_swingup", "walker_walk")},
    },
    "mrq": {"returns": trained_agents, "true-metric": true_metric},
    "noisy-ablation": {"differences": ablation},
    "noisy-options": {
        **{task: partial(with_a_step, task) for task in TASKS[:2]},
        "others": others,
        "tenfold": tenfold,
    },
    "offline": {
        "trained": partial(trained, "gaussian-0.1/offline.csv"),
        "ten-seeds": partial(alone, TEN_SEEDS, "gaussian-0.1/ten-seeds.csv"),
        "one-buffer": partial(alone, ONE_BUFFER, "gaussian-0.1/offline.csv"),
        "by-buffers": by_buffers,
        "buffers": partial(buffers, OLD + NEW),
        "scale": partial(alone, SCALE, *FIVE_METHODS),
    },
    "representations": {
        "noisy": partial(representations, "noisy"),
        "noisy-embeddings": partial(represented_embeddings, "noisy"),
        "predictions": represented_predictions,
    },
    "pixels": {
        **{
            f"{kind}-{task}": partial(returns, f"pixels/{kind}", task, ("drqv2",), kind != "clean")
            for task in TASKS
            for kind in ("clean", "gaussian")
        },
        "all-tasks": over_tasks,
        **{
            f"{task}-embeddings": partial(embeddings, "pixels/gaussian", task) for task in TASKS[:2]
        },
    },
}

if __name__ == "__main__":
    for name, tables in TABLES.items():
        page = RESULTS / name / "README.md"
        page.write_text(filled(page.read_text(), tables))
