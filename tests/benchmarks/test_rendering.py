"""benchmarks/rendering.py: our rendering beside the simulators' own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from revbis.io.machine import processor

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "rendering.py"


@pytest.mark.env("dmc", "metaworld")
def test_rendering_is_measured_beside_the_simulators_own() -> None:
    words = [sys.executable, str(PROGRAM), "--pixels", "16", "--rounds", "1", "--frames", "2"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["task"] for row in rows] == ["dmc:cheetah_run", "metaworld:hammer"]
    for row in rows:
        assert row["pixels"] == 16 and row["processor"] == processor()
        for name in ("own_fps", "full_fps", "fast_fps", "full_ratio", "fast_ratio"):
            assert row[name] > 0
