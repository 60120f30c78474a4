"""benchmarks/rendering.py: our rendering beside the simulators' own."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from revbis.envs import make_env

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "rendering.py"


@pytest.mark.env("dmc", "metaworld")
def test_rendering_is_measured_beside_the_simulators_own() -> None:
    words = [sys.executable, str(PROGRAM), "--pixels", "16", "--rounds", "1", "--frames", "2"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["task"] for row in rows] == ["dmc:cheetah_run", "metaworld:hammer"]
    for row in rows:
        assert row["pixels"] == 16
        for name in ("own_fps", "full_fps", "fast_fps", "full_ratio", "fast_ratio"):
            assert row[name] > 0


@pytest.mark.env("dmc")
def test_the_native_renderer_draws_the_pixels_of_full_quality() -> None:
    env = make_env("dmc:cheetah_run", seed=1, pixels=32)
    env.reset()
    native = env.simulation.native_renderer(32)()
    np.testing.assert_array_equal(native, env.render())
    env.close()
