"""Whole runs on a pretend GPU, beside the same on the CPU."""

import numpy as np
import pytest
from tests.agents.pretend import pretend_gpu
from tests.runs import evaluations, stop_after, tiny_config

from revbis.runs.run import train

# An episode of the walk is 40 frames: 20 agent steps.
SMALL = {"task": "tests.runs:Walk", "observation": "state", "quality": "full", "action_repeat": 2}
SMALL |= {"frames": 100, "explore_steps": 13, "eval_every": 60, "log_every": 20}


@pytest.mark.env("gym", gl=False)
@pytest.mark.parametrize(
    "more",
    [
        {"method": "laws", "mode": "decoupled", "yardstick_every": 60},
        {"method": "mrq", "latent_dim": 8, "action_dim": 4, "target_every": 10},
        {"method": "tdmpc", "latent_dim": 8, "horizon": 2},
    ],
    ids=lambda more: more["method"],
)
def test_a_run_on_a_gpu_ends_as_one_on_the_cpu(tmp_path, more):
    """It is stopped and resumed, evaluated, measured by yardsticks and logged there."""
    config = tiny_config(tmp_path / "cpu", device="cpu", **SMALL | more)
    assert train(config)
    on_gpu = tiny_config(tmp_path / "gpu", device="cuda", **SMALL | more)
    with pretend_gpu():
        assert not train(on_gpu, **stop_after(30))
        assert train(on_gpu)
    for found, expected in zip(evaluations(on_gpu), evaluations(config), strict=True):
        assert found.keys() == expected.keys()
        np.testing.assert_allclose(found["mean_return"], expected["mean_return"], rtol=1e-4)
