"""Asks a process of its own, because OpenGL and simulators may crash or hang."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

MARK = "revbis-doctor:"  # begins the line with the answer
_PATIENCE = 120.0  # importing from a cold network disk takes a minute

Answer = dict[str, Any]


def ask(question: str, **environment: str) -> Answer:
    """The answer of another process; a crash or a hang is an answer with an `error`.

    Args:
        question: One of `questions.QUESTIONS`.
        environment: Variables to set for it.
    """
    try:
        done = subprocess.run(
            _command(question),
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"hangs: no answer within {_PATIENCE:.0f} s"}
    if done.returncode < 0:
        return {"error": f"crashes ({_signal_name(-done.returncode)})"}
    marked = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if done.returncode or not marked:
        last = (done.stderr.strip() or "no error message").splitlines()[-1]
        return {"error": f"exits with code {done.returncode}: {last}"}
    answer: Answer = json.loads(marked[-1].removeprefix(MARK))
    return answer


def _command(question: str) -> list[str]:
    # -P: a file in the user's folder with the name of a package must not be imported
    return [sys.executable, "-P", "-m", "revbis.doctor.questions", question]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
