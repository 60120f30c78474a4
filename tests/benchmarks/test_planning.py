"""That benchmarks/plan.py measures; no test asserts on time itself."""

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "plan.py"


def test_a_plan_is_measured_beside_a_plain_one() -> None:
    words = [sys.executable, str(PROGRAM), "--presets", "cpu", "--rounds", "1"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode in (0, 1) and done.stderr == "", done.stderr  # 1: on a busy machine
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["benchmark"] == "plan"
    assert figures["cpu_alike"] > 0 and figures["cpu_unrelated"] > 0
