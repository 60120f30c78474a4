"""`revbis bench env`: our rendering beside the simulators' own."""

import json

import numpy as np
import pytest
from tests.envs.toys import run_python

from revbis.bench.rendering import measure_rendering
from revbis.envs import make_env


@pytest.mark.env("dmc", "metaworld")
def test_rendering_is_measured_beside_the_simulators_own() -> None:
    done = run_python(
        "from revbis.cli import main\nfrom revbis.bench import rendering\nrendering._FRAMES = 2\n"
        "main(['bench', 'env', '--pixels', '16', '--rounds', '1'])"
    )
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


def test_a_task_that_draws_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="is for dmc: and metaworld: tasks"):
        measure_rendering("tests.envs.toys:Good", pixels=16, rounds=1)
