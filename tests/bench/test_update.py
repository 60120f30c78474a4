"""That the measurements measure; no test asserts on time itself."""

import os
import subprocess
import sys

import pytest
import torch

from revbis.agents import DrQV2, DrQV2Settings, TDMPCSettings
from revbis.bench import update as speed
from revbis.io import runtime

torch.set_num_threads(1)
TINY = {"feature_dim": 4, "latent_dim": 4, "hidden": 8, "channels": 2, "objective_hidden": 8}
TINY |= {"batch_size": 8}


@pytest.mark.parametrize("transition", ["n_step", "one_step"])
@pytest.mark.parametrize("mode", ["joint", "alternating"])
def test_measured_parts_add_up(mode, transition):
    settings = DrQV2Settings(objective="mico-rev", mode=mode, transition=transition, **TINY)
    result = speed.measure_update("mico-rev", settings, pixels=20, repeats=3, threads=1)
    assert set(result.parts) == {
        "sample", "targets", "critic", "actor", "objective", "move_target",
    }  # fmt: skip
    assert all(seconds > 0 for seconds in result.parts.values())
    assert result.ratio == result.seconds_per_update / result.encoder_bound_seconds
    assert result.objective_share == result.objective_seconds / result.seconds_per_update > 0
    assert (result.threads, result.batch, result.pixels) == (1, 8, 20)
    assert result.as_dict()["parts"] == result.parts


def test_drqv2_has_no_objective_to_measure():
    settings = DrQV2Settings(**TINY)
    result = speed.measure_update("drqv2", settings, pixels=20, repeats=1)
    assert result.objective_share == 0 and "objective" not in result.parts


def test_an_agent_that_plans():
    sizes = {"batch_size": 8, "hidden": 8, "channels": 2, "samples": 8, "elites": 2, "horizon": 2}
    settings = TDMPCSettings(**sizes, strides=(2, 2, 1, 1))
    result = speed.measure_update("tdmpc", settings, pixels=40, repeats=2, threads=1).as_dict()
    assert set(result["parts"]) == {
        "sample", "targets", "model", "actor", "move_target", "priorities",
    }  # fmt: skip
    assert result["seconds_per_action"] > 0 and result["encoder_bound_seconds"] > 0
    assert "objective_seconds" not in result and "objective_share" not in result
    plain = speed.measure_update("drqv2", DrQV2Settings(**TINY), pixels=20, repeats=1).as_dict()
    assert "seconds_per_action" not in plain and plain["objective_share"] == 0


def test_measuring_restores_the_threads():
    before = torch.get_num_threads()
    settings = DrQV2Settings(**TINY)
    result = speed.measure_update("drqv2", settings, pixels=20, repeats=1, threads=before + 1)
    assert (result.threads, torch.get_num_threads()) == (before + 1, before)


def test_repeats_below_one_are_refused():
    with pytest.raises(ValueError, match="repeats must be at least 1, got 0"):
        speed.measure_update("drqv2", DrQV2Settings(**TINY), repeats=0)


def test_bound_is_one_backward_and_two_forward_passes(monkeypatch):
    agent = DrQV2((9, 20, 20), 6, DrQV2Settings(**TINY), seed=0)
    replay = speed.random_replay(20, 6, agent.settings)
    calls = []
    forward = agent.parts.encoder.forward

    def spy(observation):
        calls.append((observation.shape, torch.is_grad_enabled()))
        return forward(observation)

    monkeypatch.setattr(agent.parts.encoder, "forward", spy)
    agent.work(replay)["encoder"]()
    assert calls == [((8, 9, 20, 20), False), ((8, 9, 20, 20), True)]
    assert all(p.grad is not None for p in agent.parts.encoder.parameters())


@pytest.mark.slow
def test_runs_beside_each_other_are_measured():
    settings = DrQV2Settings(**TINY)
    found = speed.measure_neighbours("drqv2", settings, pixels=20, repeats=2)
    assert found["kept"] == found["alone"] / found["beside"] > 0
    assert found["kept_processor"] > 0


def test_freed_memory_is_kept_on_glibc(monkeypatch):
    if sys.platform.startswith("linux"):
        assert runtime.keep_freed_memory()
    monkeypatch.setattr(runtime.ctypes, "CDLL", lambda name: object())
    assert not runtime.keep_freed_memory()


def test_threads_below_one_are_refused():
    with pytest.raises(ValueError, match="threads must be at least 1, got 0"):
        runtime.prepare(0)


def test_prepared_process():
    """In a process of its own, because it cannot be undone; warnings are errors."""
    code = """
import os, sys
from revbis.io.runtime import prepare
assert "torch" not in sys.modules and "numpy" not in sys.modules
prepare(threads=1)
import numpy as np, torch
assert os.environ["OMP_WAIT_POLICY"] == "passive" and torch.get_num_threads() == 1
assert torch.tensor([1e-39]).mul(0.5).item() == 0
assert np.finfo(np.float32).tiny > 0 and str(np.finfo(np.float64))
"""
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    subprocess.run(
        [sys.executable, "-W", "error", "-c", code], check=True, env=environment, timeout=400
    )
