"""The borders. Each target makes one input from a generator and sends it in.

It returns whether the input was refused. An error that is not meant for the sender passes through.
"""

from __future__ import annotations

import contextlib
import logging
import random
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.fuzz import commands, files, library

Target = Callable[[random.Random, Path], bool]

TARGETS: dict[str, Target] = {
    "command lines": commands.command_line,
    "YAML grids": files.yaml_grid,
    "--set words": files.set_words,
    "MDP files": files.mdp_file,
    "run folders": files.run_folder,
    "checkpoints": files.checkpoint_files,
    "configs": library.config_call,
    "objectives": library.objective_call,
    "replay": library.replay_call,
    **{name: library.call(make) for name, make in library.CALLS.items()},
}


def send(target: str, number: int, folder: Path) -> bool:
    """Sends input `number` of a target; the same number is always the same input.

    Whatever it writes, it writes into the folder: the working folder is a new one, deep in there.
    """
    place = folder / "fuzz" / "in" / "put"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    with quiet(), contextlib.chdir(place):
        return TARGETS[target](random.Random(f"{target} {number}"), place)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without warnings and log lines, which thousands of bad inputs would fill a screen with."""
    level = logging.getLogger("revbis").level
    logging.getLogger("revbis").setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.getLogger("revbis").setLevel(level)
