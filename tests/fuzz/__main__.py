"""Tries many inputs: python -m tests.fuzz 10000 [TARGET ...]."""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.fuzz.targets import TARGETS, send


def main() -> int:
    total = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    names = sys.argv[2:] or list(TARGETS)
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            start, refused, broken = time.perf_counter(), 0, 0
            count = total // len(names)
            for number in range(count):
                try:
                    refused += send(name, number, Path(folder))
                except BaseException as problem:
                    if isinstance(problem, KeyboardInterrupt):
                        raise
                    broken += 1
                    lines = traceback.format_exception(problem)
                    print(f"--- {name} {number}\n{''.join(lines[-4:])}", flush=True)
            failures += broken
            seconds = time.perf_counter() - start
            print(
                f"{name}: {count} inputs, {refused} refused, {broken} tracebacks, {seconds:.0f} s"
            )
    print(f"{failures} tracebacks")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
