"""Words after `revbis`: everything up to the work itself, which is left out."""

from __future__ import annotations

import contextlib
import io
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

from tests.fuzz import junk
from tests.fuzz.judge import TracebackError, refused
from tests.fuzz.runs import finished

# They take names of _WORK when imported: if that were while those are replaced, they would keep
# the replacements.
import revbis.cli.offline
import revbis.runs.evaluate  # noqa: F401
from revbis import cli
from revbis.runs import preflight
from revbis.runs.config import Config

# What takes long, and begins when all that was given is checked.
_WORK = (
    "revbis.cli.exactness.run_cells",
    "revbis.cli.offline.run_cells",
    "revbis.envs.preview.preview",
    "revbis.runs.evaluate.play",
    "revbis.representation.neighbours.find_neighbours",
    "revbis.representation.yardsticks.measure_agent",
    "revbis.sweep.plan.make_runner",
    "revbis.cli.doctor.examine",
)
_FLAGS = [
    *("--size", "--gamma", "--seed", "--frames", "--threads", "--out", "--episodes", "--tol"),
    *("--explore-steps", "--pixels", "--discount", "--device", "--wandb", "--c", "--workers"),
    *("--methods", "--steps", "--batch", "--rounds", "--repeats", "--queries", "--origin"),
    *("--slip", "--policy", "--solver", "--level", "--gpus", "--set", "--seeds", "--preset"),
]


def command_line(rng: random.Random, folder: Path) -> bool:
    """Words after `revbis`."""
    words = _words(rng, folder)
    error, output = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stderr(error),
        contextlib.redirect_stdout(output),
        _without_work(),
        patch.object(cli, "_fail", _judged(cli._fail)),
    ):
        try:
            cli.main(words)
        except SystemExit as end:
            if "Traceback" in error.getvalue():
                raise TracebackError(error.getvalue()) from None
            return end.code not in (0, None)
    return False


def _words(rng: random.Random, folder: Path) -> list[str]:
    words = list(rng.choice(_lines(folder)))
    for _ in range(_changes(rng)):
        where = rng.randrange(1, len(words) + 1)
        kind = rng.randrange(8)
        values = [i for i in range(2, len(words)) if words[i - 1].startswith("--")]
        if kind < 4 and values:  # most checks come after the parser
            words[rng.choice(values)] = _value(rng)
        elif kind == 4 and where < len(words):
            del words[where]
        elif kind == 5:
            words.insert(where, junk.word(rng))
        else:
            words += [rng.choice(_FLAGS), _value(rng)]
    return [_inside(word.replace("\0", ""), folder) for word in words]


def _changes(rng: random.Random) -> int:
    return rng.choice([1, 1, 2])


def _lines(folder: Path) -> list[list[str]]:
    study = finished(folder)
    run = str(min(path.parent for path in study.rglob("config.json")))
    lines = [
        "train --task dmc:cartpole_balance --method simsr-rev --seed 1",
        "train --task tests.runs:Walk --preset cpu --strides 2 2 1 1 --frames 1e5",
        "train --task tests.runs:Walk --learning-rate 1e-4 --restart --out runs",
        "sweep --tasks dmc:cheetah_run --methods mico --set frames=20000 --dry-run",
        "sweep table1-cpu --seeds 1 --gpus 0.5 --threads 1 --dry-run",
        "sweep --tasks tests.runs:Walk --methods mico --workers 1 --out swept",
        "tabular solve --example toy --gamma 0.9 --metric revised",
        "tabular solve --example grid --size 3 --tol 1e-3 --origin 1",
        "tabular solve --example garnet --size 5 --seed 3 --policy optimal --c 0.5",
        "tabular solve --gym FrozenLake-v1 --metric mico --gamma 0.5",
        "tabular bounds --example toy --gamma 0.5",
        "tabular horizons --example coins --gammas 0.5 0.9 --weighted",
        "tabular values --example toy --target-gamma 0.5 --metric all",
        "tabular aggregate --example grid --size 3 --eps 0.1",
        "tabular solve --mdp none.npz",
        "exactness --methods simsr --size 5 --steps 2 --seeds 1 --gamma 0.9 --scenarios slip",
        "env list",
        "env check a.b:c",
        "env preview dmc:cheetah_run --seed 1 --pixels 84",
        "reproduce table1 --out reproduced --scale cpu --workers 1",
        "doctor",
        "eval none --episodes 1",
        "report none",
        "neighbours none",
        "yardstick none --episodes 2",
    ]
    split = [line.split() for line in lines]
    split += [
        ["eval", "--trust", run, "--episodes", "1", "--seed", "1"],
        ["report", str(study), "--out", "page"],
        ["neighbours", "--trust", run, "--queries", "2", "--neighbours", "2", "--episodes", "1"],
        ["yardstick", "--trust", run, "--episodes", "2", "--seed", "1"],
        [
            "offline",
            "--trust",
            "--replay",
            run,
            "--methods",
            "simsr",
            "--steps",
            "2",
            "--episodes",
            "2",
        ],
    ]
    return split


def _value(rng: random.Random) -> str:
    return rng.choice([junk.word(rng), str(junk.number(rng))])


def _inside(word: str, folder: Path) -> str:
    """A word that names no place outside the working folder: some are written to, some searched.

    The working folder lies so deep that `../..` is the fuzz test's own.
    """
    if word != "../..":
        word = word.replace("..", ".")
    return f".{word}" if word.startswith("/") and not word.startswith(str(folder.parent)) else word


@contextlib.contextmanager
def _without_work() -> Iterator[None]:
    """Ends a command with 0 where its work would begin."""
    with contextlib.ExitStack() as stack:
        for name in _WORK:
            stack.enter_context(patch(name, _begins))
        stack.enter_context(patch("revbis.runs.run.train", _begins_training))
        yield


def _begins(*_: Any, **__: Any) -> NoReturn:
    raise SystemExit(0)


def _begins_training(config: Config, **_: Any) -> NoReturn:
    preflight.check(config)
    raise SystemExit(0)


def _judged(fail: Callable[..., NoReturn]) -> Callable[..., NoReturn]:
    """`cli._fail`, for errors that are meant for the user: those of the parser and the system, too.

    The system's are for files, which it names.
    """

    def judged(message: str, code: int = 2) -> NoReturn:
        problem = sys.exc_info()[1]
        if isinstance(problem, OSError):
            assert problem.filename, problem
        elif problem is not None and not isinstance(problem, SystemExit):
            refused(problem)
        assert message.strip()
        fail(message, code)

    return judged
