"""Packs the runs of a study into runs.zip, with tables of what they are and what they gave.

python results/pack.py runs/noisy-state results/noisy-state

takes every run in or below the first folder, finished or not, without checkpoints. The study's
runs.zip keeps the runs that it has; a run with the same path replaces one. The tables are of all of
them: settings.csv (a row for each run), evaluations.csv (a row for each of its evaluations) and
yardsticks.csv (a row for each run that was measured). The same runs give the same bytes.
"""

import csv
import io
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from revbis.analysis.runs import Run, read_run, run_folders
from revbis.io.files import atomic_write, shown_path
from revbis.runs.folder import (
    ABOUT,
    ARCHIVE,
    CONFIG,
    FAILURES,
    RECORDS,
    RESULT,
    YARDSTICKS,
    unpacked,
)

FILES = (CONFIG, ABOUT, *RECORDS, RESULT, FAILURES, YARDSTICKS)
_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can have


def pack(source: Path, study: Path) -> list[Path]:
    """Writes a study's runs.zip and tables.

    Args:
        source: A folder or zip file with runs in or below it.
        study: The study's folder; it may be the source.

    Returns:
        The files.

    Raises:
        ValueError: If there is no run, or something cannot be read.
    """
    folders = dict(named_runs(study / ARCHIVE)) | dict(named_runs(source))
    folders = {name: folders[name] for name in sorted(folders, key=Path)}
    if not folders:
        raise ValueError(f"there is no run in {source}")
    runs = {name: run for name, path in folders.items() if (run := read_run(path, warn))}
    tables = {"settings": settings(runs), "evaluations": evaluations(runs)}
    tables["yardsticks"] = yardsticks(runs)
    contents = {f"{name}.csv": table(rows) for name, rows in tables.items() if rows}
    contents[ARCHIVE] = archive(folders)
    for name, content in contents.items():
        atomic_write(study / name, content)
    return [study / name for name in contents]


def named_runs(top: Path) -> Iterator[tuple[str, Path]]:
    """Path below the top and folder of each run; as if every runs.zip were unpacked."""
    problems: list[str] = []
    base = shown_path(unpacked(top).resolve())
    for folder in run_folders(top, problems.append):
        parts = shown_path(folder.resolve()).relative_to(base).parts
        if not parts:
            raise ValueError(f"{top} is a run: pass the folder that it is in")
        yield "/".join(part for part in parts if part != ARCHIVE), folder
    if problems:
        raise ValueError("; ".join(problems))


def archive(folders: dict[str, Path]) -> bytes:
    """A zip file of the runs' records, with the same bytes for the same records."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for name, folder in folders.items():
            for path in sorted(folder / each for each in FILES):
                if path.is_file():
                    entry = zipfile.ZipInfo(f"{name}/{path.name}", _DATE)
                    entry.create_system, entry.external_attr = 3, 0o644 << 16
                    file.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED, 9)
    return content.getvalue()


def settings(runs: dict[str, Run]) -> list[dict[str, Any]]:
    """What each run is: settings that are not the same in all runs, and where it was made."""
    configs = {name: run.config.as_dict() for name, run in runs.items()}
    keys = dict.fromkeys(key for config in configs.values() for key in config)
    differing = [
        key
        for key in keys
        if key != "out" and len({repr(config.get(key)) for config in configs.values()}) > 1
    ]
    rows = []
    for name, run in runs.items():
        versions = run.about.get("versions", {})
        names = ("revision", "machine", "processor", "command")
        made = {key: run.about.get(key) for key in names}
        made["versions"] = ", ".join(f"{package} {number}" for package, number in versions.items())
        rows.append(about(name, run) | {key: configs[name].get(key) for key in differing} | made)
    return rows


def evaluations(runs: dict[str, Run]) -> list[dict[str, Any]]:
    """Each evaluation of each run."""
    rows = []
    for name, run in runs.items():
        for one in run.evaluations:
            values = {
                "frames": one.frames,
                "agent_steps": one.agent_steps,
                "updates": one.updates,
                "seconds": one.seconds,
                "mean_return": one.mean_return,
                "success": one.success,
                "train_mean_return": one.train_return,
                "train_success": one.train_success,
            }
            rows.append(about(name, run) | values | dict(one.status))
    return rows


def yardsticks(runs: dict[str, Run]) -> list[dict[str, Any]]:
    """The measures of each run's embeddings, where there are any."""
    return [
        about(name, run) | {"frames": run.yardstick_frames} | dict(run.yardsticks)
        for name, run in runs.items()
        if run.yardsticks
    ]


def about(name: str, run: Run) -> dict[str, Any]:
    """The columns that every table begins with."""
    config = run.config
    return {"run": name, "task": config.task, "method": config.method, "seed": config.seed}


def table(rows: Iterable[dict[str, Any]]) -> bytes:
    """Rows as CSV, without columns that are empty in all of them."""
    rows = list(rows)
    names = dict.fromkeys(name for row in rows for name in row)
    columns = [name for name in names if any(row.get(name) is not None for row in rows)]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def warn(problem: object) -> None:
    """Prints a problem of a run."""
    print(f"pack.py: warning: {problem}", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {__doc__}")
    try:
        for path in pack(*map(Path, sys.argv[1:])):
            print(f"{path}: {path.stat().st_size:,} bytes")
    except ValueError as problem:
        sys.exit(f"pack.py: {problem}")
