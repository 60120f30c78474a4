"""That benchmarks/update.py measures; no test asserts on time itself."""

import importlib.util
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from revbis import agents
from revbis.io import machine

torch.set_num_threads(1)
PROGRAM = Path(__file__).parents[2] / "benchmarks" / "update.py"
SIZES = ["--preset", "cpu", "--batch", "4", "--pixels", "40", "--repeats", "2", "--threads", "1"]
TINY = {"hidden": 8, "channels": 2, "latent_dim": 4, "batch_size": 4}
ACTOR_CRITIC = {"sample", "targets", "critic", "actor", "move_target"}
PLANNER = {"sample", "targets", "model", "actor", "move_target", "priorities"}
MODES = ["joint", "alternating", "balanced"]


@pytest.fixture(scope="module")
def program():
    sys.path.append(str(PROGRAM.parent))  # as it is where a program runs
    spec = importlib.util.spec_from_file_location("bench_update", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(PROGRAM.parent))


def made(program, method, **options):
    options = {"strides": (2, 2, 1, 1)} | TINY | options
    if method == "tdmpc":
        options |= {"samples": 8, "elites": 2, "policy_samples": 2, "horizon": 2}
    settings = agents.resolve(method).settings(**options)
    agent = agents.make_agent(method, settings, (9, 40, 40), 6, seed=0)
    return agent, program.random_replay(40, settings, 3, records=1100)


def run(*words):
    return subprocess.run(
        [sys.executable, PROGRAM, *words], capture_output=True, text=True, check=False, timeout=400
    )


def test_it_prints_one_line_of_json():
    done = run("--method", "simsr-rev", "--mode", "balanced", *SIZES)
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout)
    assert list(line) == [
        "benchmark", "method", "mode", "precision", "preset", "seconds_per_update",
        "encoder_bound_seconds", "ratio", "parts", "threads", "batch", "pixels",
        "objective_seconds", "objective_share", "revision",
        "processor", "cores", "load", "python", "numpy", "torch",
    ]  # fmt: skip
    assert line["processor"] == machine.processor() and line["torch"] == version("torch")
    assert line["ratio"] == line["seconds_per_update"] / line["encoder_bound_seconds"]
    assert line["objective_share"] == line["objective_seconds"] / line["seconds_per_update"] > 0
    assert (line["mode"], line["threads"], line["batch"], line["pixels"]) == ("balanced", 1, 4, 40)
    refused = run("--batch", "0")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == "update.py: error: --batch must be at least 2, got 0\n"


@pytest.mark.parametrize(
    ("method", "options", "parts", "alone"),
    [
        *[
            ("mico-rev", {"mode": mode}, ACTOR_CRITIC | {"objective"}, "objective")
            for mode in MODES
        ],
        *[("taco", {"mode": mode}, ACTOR_CRITIC | {"objective"}, "objective") for mode in MODES],
        ("mico", {"transition": "one_step"}, ACTOR_CRITIC | {"objective"}, "objective"),
        ("drqv2", {}, ACTOR_CRITIC, "encoder"),
        ("tdmpc", {}, PLANNER, "action"),
    ],
)
def test_each_part_is_measured(program, method, options, parts, alone):
    agent, replay = made(program, method, **options)
    found = program.measure(agent, replay, 2)
    assert found["parts"].keys() == parts
    assert all(seconds > 0 for seconds in found["parts"].values())
    assert found["encoder_bound_seconds"] > 0 and found["alone"][alone] > 0


@pytest.mark.parametrize(("method", "mode"), [("drqv2", "joint"), *[("taco", m) for m in MODES]])
def test_the_bound_has_the_encoder_passes_of_an_update(program, monkeypatch, method, mode):
    agent, replay = made(program, method, mode=mode)
    calls, forward = [], agent.parts.encoder.forward

    def spy(observations):
        calls.append(torch.is_grad_enabled())
        return forward(observations)

    monkeypatch.setattr(agent.parts.encoder, "forward", spy)
    agent.update(replay, 0)
    of_update, calls[:] = sorted(calls), []
    program.work_of(agent, replay)["encoder"]()
    assert sorted(calls) == of_update
    assert all(p.grad is not None for p in agent.parts.encoder.parameters())


@pytest.mark.parametrize("method", ["simsr-rev", "taco", "tdmpc"])
def test_work_changes_no_parameter(program, method):
    agent, replay = made(program, method)
    before = {k: t.clone() for n in agent.state_dict()["networks"].values() for k, t in n.items()}
    for part in program.work_of(agent, replay).values():
        part()
    after = {k: t for n in agent.state_dict()["networks"].values() for k, t in n.items()}
    changed = [k for k in before if not torch.equal(before[k], after[k])]
    assert changed in ([], ["steps"])  # the objective counts its batches
