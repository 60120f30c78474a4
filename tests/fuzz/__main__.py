"""Tries many inputs: python -m tests.fuzz 10000 [TARGET ...]; each has two minutes."""

from __future__ import annotations

import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import NoReturn

import torch
from tests.fuzz.judge import TracebackError
from tests.fuzz.targets import TARGETS, send

_SECONDS = 120


def main() -> int:
    total = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    names = sys.argv[2:] or list(TARGETS)
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, _too_long)
    sums: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for place, name in enumerate(names):
            count = total // len(names) + (place < total % len(names))
            sums += _try(name, count, Path(folder))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"all: {total} inputs, {sums['refused']} refused, {sums['broken']} tracebacks, {peak} MB")
    return int(sums["broken"] > 0)


def _try(name: str, count: int, folder: Path) -> Counter[str]:
    """Sends the inputs of one target and prints how they ended."""
    start, slowest, sums = time.perf_counter(), (0.0, 0), Counter[str]()
    for number in range(count):
        began = time.perf_counter()
        try:
            signal.alarm(_SECONDS)
            sums["refused"] += send(name, number, folder)
        except Exception as problem:
            sums["broken"] += 1
            text = str(problem)
            if not isinstance(problem, TracebackError):
                text = "".join(traceback.format_exception(problem)[-4:])
            print(f"--- {name} {number}\n{text}", flush=True)
        finally:
            signal.alarm(0)
        slowest = max(slowest, (time.perf_counter() - began, number))
    print(
        f"{name}: {count} inputs, {sums['refused']} refused, {sums['broken']} tracebacks, "
        f"{time.perf_counter() - start:.0f} s, number {slowest[1]} took {slowest[0]:.1f} s",
        flush=True,
    )
    return sums


def _too_long(*_: object) -> NoReturn:
    raise TimeoutError(f"took more than {_SECONDS} s")


if __name__ == "__main__":
    sys.exit(main())
