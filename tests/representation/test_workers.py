"""Work on several cores, with pieces that take no time: what workers do when something ends."""

import hashlib
import os
import signal
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import pytest

from revbis.representation.workers import Steps, run_all


@dataclass(frozen=True)
class Piece:
    title: str
    steps: int = 1


PIECES = {Piece("one"): 1.0, Piece("two"): 1.0}


def quiet(*_: object) -> None:
    pass


def do(piece: Piece, progress: Steps) -> None:
    progress(piece.steps)


def die(piece: Piece, progress: Steps) -> None:
    os._exit(3)


def test_a_worker_that_dies_is_one_line() -> None:
    with pytest.raises(ValueError, match="a worker died unexpectedly"):
        run_all(PIECES, die, 2, quiet)


def be_deaf(piece: Piece, progress: Steps) -> None:
    """Minutes in one call that asks nobody whether to stop, as a large network's update is."""
    progress(piece.steps)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)


def test_workers_are_ended_in_the_middle_of_a_step() -> None:
    def interrupt(text: str, done: float) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all(PIECES, be_deaf, 2, interrupt)


def test_an_interruption_waits_until_workers_have_started(monkeypatch) -> None:
    """A worker that starts while its parent leaves would print a traceback."""
    launch = ProcessPoolExecutor._spawn_process
    started = []

    def interrupted_launch(pool: ProcessPoolExecutor) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        launch(pool)
        started.append(pool)

    monkeypatch.setattr(ProcessPoolExecutor, "_spawn_process", interrupted_launch)
    with pytest.raises(KeyboardInterrupt):
        run_all(PIECES, do, 2, quiet)
    assert len(started) == 2
