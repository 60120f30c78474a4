"""Calls from Python, with something else for one of their arguments."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.fuzz import junk
from tests.fuzz.judge import refused
from tests.fuzz.runs import finished, walk

from revbis import objectives, tabular
from revbis.agents import MRQ, TDMPC, DrQV2, DrQV2Settings, MRQSettings, TDMPCSettings
from revbis.analysis import figures, stats, tables
from revbis.analysis.differences import differences
from revbis.analysis.page import write_page
from revbis.analysis.study import read_study
from revbis.envs import make_env
from revbis.replay import PrioritisedReplay, Replay, TransitionReplay
from revbis.runs import preflight
from revbis.runs.config import Config

Calls = list[tuple[Callable[..., Any], dict[str, Any]]]


def call(make: Callable[[Path], Calls]) -> Callable[[random.Random, Path], bool]:
    """Makes a target of calls: one of them, with one of its arguments changed."""
    return lambda rng, folder: _send(rng, make(folder))


def _send(rng: random.Random, calls: Calls) -> bool:
    function, arguments = rng.choice(calls)
    changed = arguments | {rng.choice(list(arguments)): junk.anything(rng)}
    try:
        function(**changed)
    except Exception as problem:
        return refused(problem)
    return False


def config_call(rng: random.Random, folder: Path) -> bool:
    """Config from Python and from a file's values."""
    values = walk(folder).as_dict()
    for _ in range(rng.randrange(1, 3)):
        values[rng.choice(list(values))] = junk.anything(rng)
    try:
        config = (
            Config.from_dict(values) if rng.random() < 0.5 else walk(folder).with_settings(**values)
        )
        preflight.check(config)
    except Exception as problem:
        return refused(problem)
    return False


def exact_metrics(folder: Path) -> Calls:
    """The exact metrics."""
    mdp, policy = tabular.examples.toy()
    result = tabular.revised(mdp, policy, 0.9)
    matrix = result.matrix()
    of_policy = {"mdp": mdp, "policy": policy, "gamma": 0.9}
    example = tabular.examples
    square = {"P": np.asarray([[[0.5, 0.5]], [[0.0, 1.0]]]), "R": np.ones((2, 1)), "mask": None}
    return [
        (tabular.FiniteMDP, square),
        (tabular.FiniteMDP, square | {"grid": np.array([[0, 0], [0, 1]])}),
        (tabular.FiniteMDP.from_gymnasium, {"env": "FrozenLake-v1"}),
        (tabular.revised, of_policy | {"tol": 1e-6, "c": 0.5, "level": "state"}),
        (tabular.mico, of_policy | {"tol": 1e-6, "solver": "auto", "c": None}),
        (tabular.pi_bisimulation, of_policy | {"tol": 1e-6, "progress": None}),
        (tabular.bisimulation, {"mdp": mdp, "gamma": 0.9, "tol": 1e-6}),
        (tabular.lax_bisimulation, {"mdp": mdp, "gamma": 0.9, "tol": 1e-6}),
        (tabular.solve, of_policy | {"metric": "mico", "tol": 1e-6, "c": [0.5, 0.4]}),
        (tabular.policy_value, of_policy),
        (tabular.action_value, {"mdp": mdp, "value": np.ones(3), "gamma": 0.9}),
        (tabular.optimal_policy, {"mdp": mdp, "gamma": 0.9}),
        (tabular.aggregate, {"result": result, "eps": 0.1}),
        (tabular.value_gap_bound, {"result": result, "target_gamma": 0.5}),
        (tabular.certify, of_policy | {"metric": "revised", "d": matrix}),
        (tabular.compare, {"learned": matrix, "exact": result, "neighbours": 1, "seed": 0}),
        (example.toy, {"scaling": "printed"}),
        (example.grid_world, {"rows": 3, "columns": 2, "slip": 0.1, "walls": [], "goal": (0, 0)}),
        (example.four_rooms, {"size": 5, "slip": 0.1}),
        (example.garnet, {"n_states": 5, "n_actions": 2, "branching": 2, "seed": 1}),
        (example.delay_chain, {"steps": 4}),
        (result.pairs, {"i": 0, "j": np.array([1, 2])}),
        (result.row, {"i": 0}),
        (result.embedding, {"dimension": 2}),
        (tabular.negative_type, {"d": matrix, "error_bound": 1e-6}),
    ]


def objective_call(rng: random.Random, folder: Path) -> bool:
    """The objectives."""
    name = rng.choice([*objectives.OBJECTIVES, junk.word(rng)])
    options = {
        key: junk.anything(rng)
        for key in ("loss", "normalisation", "hidden", "pairing", "beta", junk.word(rng))
        if rng.random() < 0.15
    }
    latent = 4 if rng.random() < 0.8 else junk.anything(rng)
    draw = torch.Generator().manual_seed(0)
    batch: dict[str, Any] = {
        "z": torch.randn(6, 4, generator=draw),
        "action": torch.rand(6, 2, generator=draw),
        "reward": torch.rand(6, generator=draw),
        "discount": torch.full((6,), 0.9),
        "next_z": torch.randn(6, 4, generator=draw),
    }
    if rng.random() < 0.7:
        batch[rng.choice(list(batch))] = _tensor(junk.anything(rng))
    try:
        objectives.make_objective(name, latent, 2, **options)(**batch)
    except Exception as problem:
        return refused(problem)
    return False


def replay_call(rng: random.Random, folder: Path) -> bool:
    """The replay buffer."""
    settings: dict[str, Any] = {
        "capacity": 50,
        "observation_shape": (2,),
        "action_size": 1,
        "stack": 1,
        "n_step": 2,
        "discount": 0.9,
        "shift": 0,
        "seed": 0,
        "storage": "ram",
        "one_step": False,
    }
    if rng.random() < 0.6:
        settings[rng.choice(list(settings))] = junk.anything(rng)
    step: dict[str, Any] = {"action": np.zeros(1, np.float32), "reward": 0.0, "discount": 1.0}
    step |= {"frame": np.zeros(2, np.float32), "last": False}
    if rng.random() < 0.5:
        step[rng.choice(list(step))] = junk.anything(rng)
    count = 4 if rng.random() < 0.7 else junk.anything(rng)
    length = 3 if rng.random() < 0.7 else junk.anything(rng)
    shift = "image" if rng.random() < 0.8 else junk.anything(rng)
    try:
        replay = Replay(**settings)
        frame = np.zeros(2, np.float32) if rng.random() < 0.8 else junk.array(rng)
        replay.begin(frame)
        for _ in range(8):
            replay.add(**step)
        replay.sample(count)
        replay.sample_sequences(count, length, shift=shift)
    except Exception as problem:
        return refused(problem)
    return False


def environments(folder: Path) -> Calls:
    """Environments and backgrounds."""
    env = make_env("tests.runs:Walk", seed=1, observation="state")
    env.reset()
    settings = {
        "task": "tests.runs:Walk",
        "seed": 1,
        "pixels": 24,
        "frame_stack": 2,
        "action_repeat": 2,
        "quality": "full",
        "distractor": None,
        "distractor_strength": None,
        "distractor_split": "train",
        "observation": "pixels",
        "state_noise": 0,
        "state_noise_kind": "gaussian",
    }
    return [
        (make_env, settings),
        (make_env, settings | {"observation": "state", "state_noise": 3}),
        (make_env, settings | {"distractor": "gaussian", "distractor_strength": 0.2}),
        (env.step, {"action": np.zeros(1, np.float32)}),
        (env.reset, {"seed": 1, "options": None}),
    ]


def agents(folder: Path) -> Calls:
    """The agent and its settings."""
    sizes = {"hidden": 8, "feature_dim": 4, "latent_dim": 4, "explore_steps": 0}
    settings = DrQV2Settings(objective="mico", **sizes)
    make = {"observation_shape": (2,), "action_size": 1, "settings": settings, "seed": 1}
    agent = DrQV2(**make)
    return [
        (DrQV2Settings, vars(settings)),
        (DrQV2, make | {"device": "cpu"}),
        (agent.load_state_dict, {"state": agent.state_dict()}),
        *_planning(make),
        *_representing(make),
    ]


def _representing(make: dict[str, Any]) -> Calls:
    """MR.Q, and the replay buffer it draws from."""
    sizes = {"hidden": 8, "latent_dim": 4, "action_dim": 4, "horizon": 2, "batch_size": 2}
    settings = MRQSettings(**sizes, representation=("model", "simsr-rev"), explore_steps=0)
    make = make | {"settings": settings}
    agent = MRQ(**make)
    replay = TransitionReplay(20, (2,), 1, stack=1, n_step=1)
    replay.begin(np.zeros(2, np.float32))
    for _ in range(6):
        replay.add([0.0], 0.0, 1.0, np.zeros(2, np.float32), last=False)
    entry = replay.sample_transitions(3).entry
    return [
        (MRQSettings, vars(settings)),
        (MRQ, make | {"device": "cpu", "discrete": True}),
        (agent.load_state_dict, {"state": agent.state_dict()}),
        (replay.sample_transitions, {"batch_size": 3}),
        (replay.sample_windows, {"batch_size": 3, "length": 2}),
        (replay.set_priorities, {"entry": entry, "priority": np.ones(3)}),
    ]


def _planning(make: dict[str, Any]) -> Calls:
    """TD-MPC, and the replay buffer it draws from."""
    sizes = {"hidden": 8, "latent_dim": 4, "horizon": 2, "samples": 8, "elites": 2}
    settings = TDMPCSettings(**sizes, policy_samples=1, iterations=1, explore_steps=0)
    make = make | {"settings": settings}
    agent = TDMPC(**make)
    replay = PrioritisedReplay(20, (2,), 1, stack=1, n_step=1)
    replay.begin(np.zeros(2, np.float32))
    for _ in range(6):
        replay.add([0.0], 0.0, 1.0, np.zeros(2, np.float32), last=False)
    entry = replay.sample_prioritised(3, 2, shift="image").entry
    return [
        (TDMPCSettings, vars(settings)),
        (TDMPC, make | {"device": "cpu"}),
        (agent.load_state_dict, {"state": agent.state_dict()}),
        (replay.sample_prioritised, {"batch_size": 3, "length": 2, "shift": "image"}),
        (replay.set_priorities, {"entry": entry, "priority": np.ones(3)}),
    ]


def analysis(folder: Path) -> Calls:
    """Statistics, tables and figures."""
    study = read_study([finished(folder)])
    scores = {"dmc:a": np.array([1.0, 2.0]), "dmc:b": np.array([0.5])}
    seeds = {"dmc:a": {1: 1.0, 2: 2.0}}
    return [
        (stats.summarise, {"values": np.ones(3)}),
        (stats.default_bounds, {"task": "dmc:a"}),
        (stats.normalise_scores, {"scores": scores, "bounds": {"dmc:a": (0, 1), "dmc:b": (0, 1)}}),
        (stats.ewma, {"values": np.ones(3), "alpha": 0.5}),
        (stats.area, {"frames": np.array([0, 1, 2]), "scores": np.ones((2, 3))}),
        (stats.failed_share, {"finals": np.ones(2), "reference": 1.0, "share": 0.5, "low": 0.0}),
        (stats.mean, {"scores": scores}),
        (stats.median, {"scores": scores}),
        (stats.iqm, {"scores": scores}),
        (stats.optimality_gap, {"scores": scores, "goal": 1.0}),
        (stats.profile, {"scores": scores, "thresholds": np.array([0.0, 1.0])}),
        (stats.improvement, {"scores": scores, "other": scores}),
        (_interval, {"statistic": stats.iqm, "scores": scores, "seed": 0, "resamples": 10}),
        (stats.paired, {"scores": seeds, "other": seeds, "seed": 0, "resamples": 10}),
        (tables.score_table, {"study": study, "kind": "final", "budget": 100, "reported": False}),
        (_differences, {"study": study, "baseline": study.labels[0], "budget": 100, "seed": 0}),
        (figures.learning_curves, {"study": study, "alpha": 0.5}),
        (figures.ablation, {"study": study, "budget": study.runs[0].frames, "seed": 0}),
        (lambda study: write_page(study, folder / "page"), {"study": study}),
    ]


def _differences(study: Any, baseline: Any, budget: Any, seed: Any) -> Any:
    return differences(study, baseline, budget=budget, seed=seed)


def _interval(statistic: Any, scores: Any, seed: Any, resamples: Any) -> Any:
    return stats.interval(statistic, scores, seed=seed, resamples=resamples)


def _tensor(value: Any) -> Any:
    is_array = isinstance(value, np.ndarray) and value.dtype.kind in "fib"
    return torch.from_numpy(value) if is_array else value


CALLS: dict[str, Callable[[Path], Calls]] = {
    "exact metrics": exact_metrics,
    "environments": environments,
    "agents": agents,
    "analysis": analysis,
}
