"""The parts of the page that need no script: headline, messages, timing, episodes."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from revbis.analysis.files import printable
from revbis.analysis.report.markup import Html, element, section
from revbis.analysis.report.training import Training, Trainings
from revbis.analysis.runs import Run, failure_text
from revbis.analysis.scores import Group, Study

_FIRST = 6  # messages shown before the rest is folded away
_MANY = 30  # runs whose bars are folded away by task
_ROOM = 12_000_000  # bytes for videos and pictures, in base64: the page is to stay below 15 MB
_PHASES = ["environment", "rendering", "acting", "sampling", "update", "evaluation"]
_PHASES += ["saving", "other"]


@dataclass(frozen=True)
class Media:
    """Files that show a run's agent.

    Attributes:
        video: An mp4 of an episode.
        neighbours: A picture of nearest states.
    """

    video: Path | None = None
    neighbours: Path | None = None


def title(study: Study) -> str:
    """What the page is about, in a line."""
    if len(study.runs) == 1:
        config = study.runs[0].config
        return f"{config.task} · {config.method} · seed {config.seed}"
    if len(study.tasks) == 1:
        return f"{study.tasks[0]} · {_counted(len(study.labels), 'method')}"
    return f"{_counted(len(study.labels), 'method')} on {_counted(len(study.tasks), 'task')}"


def headline(study: Study) -> Html:
    """A few figures about the whole."""
    runs = study.runs
    spent = sum(run.seconds for run in runs)
    finished = sum(run.finished for run in runs)
    presets = sorted({run.config.preset for run in runs})
    qualities = sorted({run.config.quality for run in runs})
    tiles = [
        (f"{finished} / {len(runs)}", "runs finished"),
        (str(len(study.labels)), "methods" if len(study.labels) > 1 else "method"),
        (str(len(study.tasks)), "tasks" if len(study.tasks) > 1 else "task"),
        (_short(sum(run.frames for run in runs)), "frames in all"),
        (_duration(spent), "of computing"),
        (" and ".join(presets), "presets" if len(presets) > 1 else "preset"),
        (" and ".join(qualities), "render quality"),
    ]
    return element(
        "dl",
        *(element("div", element("dd", v), element("dt", k)) for v, k in tiles),
        class_="tiles",
    )


def failing(study: Study, root: Path) -> Html:
    """Runs that have failed and are not finished, with the last reason."""
    if not study.failing:
        return Html()
    items = [
        element("li", element("b", _below(root, one.folder)), f": {failure_text(one.failures)}")
        for one in study.failing
    ]
    given_up = sum(one.failures.given_up for one in study.failing)
    note = element(
        "p",
        f"{given_up} of {len(items)} given up. revbis sweep with --retry-failed tries them again; "
        "the log of each attempt is in the run's attempts folder.",
        class_="note",
    )
    return element(
        "section",
        element("h2", "Failed runs"),
        note,
        element("ul", *items),
        id="failed",
        class_="notice alarm",
    )


def messages(study: Study, root: Path, more: Sequence[str]) -> Html:
    """Problems of the study, where nobody can miss them; failed runs stand by themselves."""
    apart = {printable(f"{f.folder} is {failure_text(f.failures)}") for f in study.failing}
    found = [problem for problem in (*study.problems, *more) if problem not in apart]
    found = [problem.replace(f"{root}/", "") for problem in found]
    found.sort(key=lambda problem: " is left out: " not in problem)  # what is missing comes first
    if not found:
        return Html()
    items = [element("li", problem) for problem in found]
    folded = Html()
    if len(items) > _FIRST:
        rest = element("ul", *items[_FIRST:])
        folded = element("details", element("summary", f"{len(items) - _FIRST} more"), rest)
    name = "1 thing to know" if len(found) == 1 else f"{len(found)} things to know"
    shown = element("ul", *items[:_FIRST])
    return element(
        "section", element("h2", name), shown, folded, id="problems", class_="notice", role="note"
    )


def alarms(study: Study) -> Html:
    """Every alarm with the run that raised it."""
    found = [
        element(
            "li",
            element("b", f"{group.task} · {group.label} · seed {run.config.seed}"),
            ": " if one.frames is None else f", frame {one.frames:,}: ",
            one.text or one.name,
            data_task=study.tasks.index(group.task),
            data_label=study.labels.index(group.label),
        )
        for group in study.groups
        for run in group.runs
        for one in run.alarms
    ]
    if not found:
        return Html()
    return element(
        "section",
        element("h2", "Alarms"),
        element("ul", *found),
        id="alarms",
        class_="notice alarm",
    )


def timing(study: Study, trainings: Trainings) -> Html:
    """Where each run's time went, as bars of seconds for 1,000 frames."""
    found = [
        (group, run, training)
        for group in study.groups
        for run in group.runs
        if (training := trainings.of(run)).seconds > 0 and training.last_frame > 0
    ]
    if not found:
        return Html()
    longest = max(training.seconds / training.last_frame for _, _, training in found)
    names = [*_PHASES, *sorted({n for *_, t in found for n in t.phases} - set(_PHASES))]
    key = [
        element("span", element("i", class_=f"phase p{i % 8}"), name, class_="key")
        for i, name in enumerate(names)
    ]
    blocks: list[Html] = []
    for task in study.tasks:
        bars = [
            _bar(run, training, names, longest, group.label, _place(study, group))
            for group, run, training in found
            if group.task == task
        ]
        if bars:
            heading = element("summary", task, f" · {_counted(len(bars), 'run')}")
            is_open = "" if len(found) <= _MANY or not blocks else None
            place = study.tasks.index(task)
            blocks.append(element("details", heading, *bars, open=is_open, data_task=place))
    note = "Seconds for 1,000 frames, by phase: the shorter the faster. Percentages are of the run."
    return section("timing", "Timing", element("p", *key, class_="keys"), *blocks, note=note)


def episodes(study: Study, media: Mapping[Path, Media]) -> tuple[Html, list[str]]:
    """Videos and neighbours, and what was left out because the page would be too large."""
    cards, skipped, room = [], [], _ROOM
    for group in study.groups:
        for run in group.runs:
            files = media.get(run.folder, Media())
            name = f"{group.task} · {group.label} · seed {run.config.seed}"
            shown = []
            for path, kind in ((files.video, "video/mp4"), (files.neighbours, "image/png")):
                if path is None:
                    continue
                size = path.stat().st_size * 4 // 3
                if size > room:
                    skipped.append(f"{name}: {path.name} is left out, the page would be too large")
                    continue
                room -= size
                shown.append(_figure(path, kind, name))
            if shown:
                caption = element("h3", name)
                cards.append(element("div", caption, *shown, class_="card", **_place(study, group)))
    if not cards:
        return Html(), skipped
    note = (
        "The newest checkpoint with the mean action. Nearest states: the first of each row is "
        "asked for, above the others stand their distance and the reward that followed."
    )
    return section(
        "episodes", "Episodes and neighbours", element("div", *cards, class_="media"), note=note
    ), skipped


def _figure(path: Path, kind: str, name: str) -> Html:
    source = f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
    if kind.startswith("image"):
        return Html(f'<img alt="Nearest states under the learned metric" src="{source}">')
    switches = dict.fromkeys(("controls", "loop", "muted", "playsinline"), "")
    return element("video", src=source, aria_label=f"An episode of {name}", **switches)


def _bar(
    run: Run,
    training: Training,
    names: Sequence[str],
    longest: float,
    label: str,
    place: Mapping[str, Any],
) -> Html:
    pieces = []
    for i, name in enumerate(names):
        share = training.phases.get(name, 0.0) / training.seconds
        if share < 0.001:
            continue
        pieces.append(
            element(
                "i",
                f"{share:.0%}" if share >= 0.08 else "",
                class_=f"phase p{i % 8}",
                style=f"width:{100 * share:.2f}%",
                title=f"{name}: {share:.1%}, {_duration(training.phases[name])}",
            )
        )
    length = 100 * training.seconds / training.last_frame / longest
    bar = element("span", *pieces, class_="bar", style=f"width:{length:.1f}%")
    speed = f"{training.last_frame / training.seconds:.1f} frames/s"
    return element(
        "div",
        element("span", f"{label} · seed {run.config.seed}", class_="name"),
        element("span", bar, class_="track"),
        element("span", speed, class_="speed"),
        element("span", _duration(training.seconds), class_="time"),
        class_="timing",
        **place,
    )


def _place(study: Study, group: Group) -> dict[str, Any]:
    """Attributes by which the script shows and hides what belongs to a group."""
    return {
        "data_task": study.tasks.index(group.task),
        "data_label": study.labels.index(group.label),
    }


def _below(root: Path, folder: Path) -> str:
    """A folder's path, without the part that all share."""
    return str(folder).removeprefix(f"{root}/")


def _counted(number: int, name: str) -> str:
    return f"{number} {name}" + ("" if number == 1 else "s")


def _short(number: int) -> str:
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return str(number)


def _duration(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.1f} s"
