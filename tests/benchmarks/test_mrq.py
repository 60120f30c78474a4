"""That benchmarks/mrq.py measures; no test asserts on time itself."""

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "mrq.py"


def test_a_step_is_measured_beside_a_plain_one() -> None:
    sizes = ["--presets", "cpu", "--threads", "1", "--rounds", "1", "--steps", "1"]
    words = [sys.executable, str(PROGRAM), *sizes]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode in (0, 1) and done.stderr == "", done.stderr  # 1: on a busy machine
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["benchmark"] == "mrq" and figures["cpu_float32_threads_1"] > 0
