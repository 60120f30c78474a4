"""A page about one run that opens from disk: curves, timing, a video, neighbours, settings."""

from __future__ import annotations

import base64
import io
import json
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from revbis.config import Config
from revbis.records import read_records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BLUE, _ORANGE, _GREEN = "#0072B2", "#D55E00", "#009E73"  # told apart by colour-blind people too

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #222; background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem }
img, svg, video { max-width: 100%; height: auto }
table { border-collapse: collapse; font-size: .9rem } td, th { padding: .2rem .8rem .2rem 0;
  text-align: left; vertical-align: top }
pre { background: #f4f4f4; padding: .6rem; overflow-x: auto }
.alarm { border-left: 4px solid #D55E00; padding-left: .8rem }
"""


def write_page(run: Path, path: Path, *, video: Path | None, neighbours: Path | None) -> None:
    """Writes the page of a run.

    Args:
        run: The run's folder.
        path: The HTML file.
        video: An mp4 to show, if there is one.
        neighbours: A picture of neighbours to show, if there is one.

    Raises:
        ValueError: If the folder is no run.
    """
    config = Config.read(run / "config.json")
    evaluations = read_records(run / "eval.jsonl")
    lines = read_records(run / "train.jsonl")
    about = json.loads((run / "run.json").read_text())
    parts = [
        f"<h1>{escape(config.task)} · {escape(config.method)} · seed {config.seed}</h1>",
        _summary(config, evaluations),
        *(_alarm(record) for record in read_records(run / "alarms.jsonl")),
        _section("Learning curve", _svg(_learning_curve(evaluations, lines))),
    ]
    if any(record["c"] is not None for record in lines):
        parts.append(_section("Coefficient c", _svg(_coefficient(lines))))
    if lines:
        parts.append(_section("Where the time went", _svg(_timing(lines[-1]))))
    if video is not None:
        source = _embedded(video, "video/mp4")
        parts.append(_section("An episode", f'<video controls loop muted src="{source}"></video>'))
    if neighbours is not None:
        source = _embedded(neighbours, "image/png")
        picture = f'<img alt="nearest states under the learned metric" src="{source}">'
        parts.append(_section("Nearest states under the learned metric", picture))
    parts.append(_section("Command", f"<pre>{escape(about['command'])}</pre>"))
    parts.append(_section("Settings", _table(config.as_dict())))
    versions = about["versions"] | {"revision": about["revision"]}
    parts.append(_section("Versions", _table(versions)))
    path.parent.mkdir(parents=True, exist_ok=True)
    head = '<meta name="viewport" content="width=device-width"><meta charset="utf-8">'
    title = f"<title>revbis: {escape(config.task)}</title><style>{_STYLE}</style>"
    body = "\n".join(parts)
    path.write_text(
        f'<!doctype html><html lang="en"><head>{head}{title}</head><body>{body}</body></html>'
    )


def _summary(config: Config, evaluations: list[dict[str, Any]]) -> str:
    if not evaluations:
        return "<p>Not evaluated yet.</p>"
    last = evaluations[-1]
    return (
        f"<p>Preset {escape(config.preset)}, render quality {config.quality}. "
        f"{last['frames']:,} of {config.frames:,} frames in {last['seconds'] / 60:.1f} minutes; "
        f"the last evaluation's mean return is <b>{last['mean_return']:.1f}</b> over "
        f"{len(last['returns'])} episodes.</p>"
    )


def _learning_curve(evaluations: list[dict[str, Any]], lines: list[dict[str, Any]]) -> Figure:
    figure, axis = _axes("frames", "return")
    seen = [(line["frames"], line["episode_return"]) for line in lines if line["episode_return"]]
    if seen:
        axis.plot(
            *zip(*seen, strict=True), color="0.75", lw=1, label="training episodes, with noise"
        )
    frames = [record["frames"] for record in evaluations]
    for frame, record in zip(frames, evaluations, strict=True):
        axis.scatter(
            [frame] * len(record["returns"]), record["returns"], color=_BLUE, s=6, alpha=0.4
        )
    means = [record["mean_return"] for record in evaluations]
    axis.plot(
        frames, means, color=_BLUE, marker="o", ms=4, label="evaluation, mean (dots: episodes)"
    )
    axis.legend(frameon=False)
    return figure


def _coefficient(lines: list[dict[str, Any]]) -> Figure:
    figure, axis = _axes("frames", "c, weight of the next-state distance")
    seen = [(line["frames"], line["c"]) for line in lines if line["c"] is not None]
    axis.plot(*zip(*seen, strict=True), color=_ORANGE)
    return figure


def _timing(line: dict[str, Any]) -> Figure:
    figure, axis = _axes("seconds", "")
    spent = {k.removeprefix("seconds/"): v for k, v in line.items() if k.startswith("seconds/")}
    spent = dict(sorted(spent.items(), key=lambda item: item[1]))
    bars = axis.barh(list(spent), list(spent.values()), color=_GREEN)
    total = max(sum(spent.values()), 1e-9)
    axis.bar_label(bars, [f"{value / total:.0%}" for value in spent.values()], padding=3)
    return figure


def _axes(x: str, y: str) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axis = figure.subplots()
    axis.set(xlabel=x, ylabel=y)
    axis.spines[["top", "right"]].set_visible(False)
    return figure, axis


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _embedded(path: Path, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


def _section(title: str, content: str) -> str:
    return f"<h2>{escape(title)}</h2>\n{content}"


def _alarm(record: dict[str, Any]) -> str:
    return f'<p class="alarm">Frame {record["frames"]:,}: {escape(record["text"])}</p>'


def _table(values: dict[str, Any]) -> str:
    rows = [
        f"<tr><td>{escape(str(k))}</td><td>{escape(str(v))}</td></tr>" for k, v in values.items()
    ]
    return f"<table>{''.join(rows)}</table>"
