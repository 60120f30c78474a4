"""The doors. Each target makes one input from a generator and sends it in.

It returns whether the input was refused. An exception that is not meant for a user passes through.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import random
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.fuzz import junk
from tests.training import tiny_config

from revbis import cli, objectives, tabular
from revbis.analysis.report import write_report
from revbis.analysis.scores import read_study
from revbis.config import Config
from revbis.replay import Replay
from revbis.sweep.driver import Place, Sweep
from revbis.sweep.grid import parse_settings, read_grid
from revbis.training import checkpoint, preflight
from revbis.training.run import open_run, train

Target = Callable[[random.Random, Path], bool]
_WALK = {"task": "tests.training:Walk", "observation": "state", "quality": "full", "frames": 800}


class TracebackError(AssertionError):
    """An input ended in something other than an error for its sender."""


def command_line(rng: random.Random, folder: Path) -> bool:
    """Words after `revbis`; whatever would take long is only parsed and checked."""
    words = _words(rng, folder)
    said, out = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(out):
        try:
            if words[:1] == ["train"]:
                command = cli._parse("train", words[1:])
                if command.args:  # not --list
                    preflight.check(command.args[0])
            else:
                cli.main(words)
        except SystemExit as stop:
            if "Traceback" in said.getvalue():
                raise TracebackError(said.getvalue()) from None
            return stop.code not in (0, None)
        except ValueError:  # of the checks; main makes one line of it
            return True
    return False


def _words(rng: random.Random, folder: Path) -> list[str]:
    line = [
        ["train", "--task", "dmc:cartpole_balance", "--method", "simsr-rev", "--seed", "1"],
        ["train", "--task", "tests.training:Walk", "--preset", "cpu", "--strides", "2", "2", "1"],
        ["sweep", "--tasks", "dmc:cheetah_run", "--methods", "mico", "--set", "frames=20000"],
        ["sweep", "table1-cpu", "--seeds", "1", "--gpus", "0.5", "--threads", "1"],
        ["tabular", "solve", "--example", "toy", "--gamma", "0.9", "--metric", "revised"],
        ["tabular", "solve", "--example", "grid", "--size", "3", "--tol", "1e-3"],
        ["tabular", "bounds", "--example", "toy", "--gamma", "0.5"],
        ["tabular", "solve", "--mdp", str(folder / "none.npz")],
        ["tabular", "values", "--example", "toy", "--target-gamma", "0.5", "--metric", "all"],
        ["tabular", "aggregate", "--example", "grid", "--size", "3", "--eps", "0.1"],
        ["eval", str(folder / "none"), "--episodes", "1"],
        ["report", str(folder / "none")],
        ["neighbours", str(folder / "none")],
        ["env", "list"],
        ["env", "check", "a.b:c"],
        ["reproduce", "table1", "--out", str(folder / "reproduced"), "--scale", "cpu"],
    ][rng.randrange(16)]
    flags = ["--size", "--gamma", "--seed", "--frames", "--threads", "--out", "--episodes", "--tol"]
    flags += [
        "--explore-steps",
        "--pixels",
        "--discount",
        "--device",
        "--wandb",
        "--c",
        "--workers",
    ]
    words = list(line)
    for _ in range(rng.choice([1, 1, 2])):
        where = rng.randrange(1, len(words) + 1)
        kind = rng.randrange(8)
        values = [i for i in range(2, len(words)) if words[i - 1].startswith("--")]
        if kind < 4 and values:  # most doors lie behind the parser
            words[rng.choice(values)] = rng.choice([junk.word(rng), str(junk.number(rng))])
        elif kind == 4 and where < len(words):
            del words[where]
        elif kind == 5:
            words.insert(where, junk.word(rng))
        else:
            words += [rng.choice(flags), rng.choice([junk.word(rng), str(junk.number(rng))])]
    words = [word.replace("\0", "") for word in words]
    if words[0] == "sweep":
        words.append("--dry-run")
    if words[0] == "reproduce":  # never really runs: the last word is a flag without a value
        words.append("--out")
    return words


def yaml_grid(rng: random.Random, folder: Path) -> bool:
    """A grid's file."""
    start = {
        "tasks": ["dmc:cheetah_run"],
        "methods": ["drqv2", "mico"],
        "seeds": [1, 2],
        "preset": "cpu",
        "settings": {"frames": 20000, "learning_rate": "1e-4", "strides": [2, 2, 1, 1]},
        "overrides": {"a": {"mode": "joint"}, "b": {"normalisation": False}},
    }
    if rng.random() < 0.3:
        name = rng.choice([field.name for field in fields(Config)])
        start["settings"] |= {name: junk.plain(rng)}  # type: ignore[operator]
    else:
        start = junk.changed(rng, start)
    text = json.dumps(start).encode()
    if rng.random() < 0.5:
        text = junk.damaged(rng, text)
    path = folder / "grid.yaml"
    path.write_bytes(text)
    try:
        configs = read_grid(str(path)).configs(folder / "out")
        for config in configs[:20]:
            preflight.check(config)
        Sweep(configs[:20], Place(str(folder / "out")))
    except ValueError:
        return True
    return False


def set_words(rng: random.Random, folder: Path) -> bool:
    """Words after --set."""
    name = rng.choice([*(field.name for field in fields(Config)), junk.word(rng)])
    try:
        parse_settings([f"{name}={junk.word(rng)}", junk.word(rng)][: rng.randrange(1, 3)])
    except ValueError:
        return True
    return False


def config_call(rng: random.Random, folder: Path) -> bool:
    """Config from Python and from a file's values."""
    values = tiny_config(folder, **_WALK).as_dict()
    for _ in range(rng.randrange(1, 3)):
        values[rng.choice(list(values))] = junk.anything(rng)
    try:
        config = Config.from_dict(values) if rng.random() < 0.5 else Config(**values)
        preflight.check(config)
    except ValueError:
        return True
    return False


def mdp_file(rng: random.Random, folder: Path) -> bool:
    """An MDP's file: other bytes, or other arrays."""
    path = folder / "mdp.npz"
    mdp, _ = tabular.examples.grid_world(3) if rng.random() < 0.5 else tabular.examples.toy()
    mdp.save(path)
    if rng.random() < 0.5:
        path.write_bytes(junk.damaged(rng, path.read_bytes()))
    else:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        arrays[rng.choice(list(arrays))] = junk.array(rng)
        np.savez(path, **arrays)
    try:
        tabular.FiniteMDP.load(path)
    except ValueError:
        return True
    return False


def tabular_call(rng: random.Random, folder: Path) -> bool:
    """The exact metrics from Python."""
    mdp, policy = tabular.examples.toy()
    values: dict[str, Any] = {
        "P": np.asarray([[[0.5, 0.5], [0.0, 1.0]]]),
        "R": np.ones((1, 2)),
        "policy": policy,
        "gamma": 0.9,
        "tol": 1e-6,
        "n": 3,
        "solver": "auto",
    }
    values[rng.choice(list(values))] = junk.anything(rng)
    calls: list[Callable[[], Any]] = [
        lambda: tabular.FiniteMDP(values["P"], values["R"]),
        lambda: tabular.revised(mdp, values["policy"], values["gamma"], tol=values["tol"]),
        lambda: tabular.mico(mdp, values["policy"], values["gamma"], solver=values["solver"]),
        lambda: tabular.bisimulation(mdp, values["gamma"], tol=values["tol"]),
        lambda: tabular.pi_bisimulation(mdp, values["policy"], values["gamma"]),
        lambda: tabular.policy_value(mdp, values["policy"], values["gamma"]),
        lambda: tabular.optimal_policy(mdp, values["gamma"]),
        lambda: tabular.examples.grid_world(values["n"]),
        lambda: tabular.examples.garnet(values["n"], 2, seed=1),
        lambda: tabular.examples.delay_chain(values["n"]),
        lambda: tabular.aggregate(tabular.revised(mdp, policy, 0.9), values["tol"]),
        lambda: tabular.value_gap_bound(tabular.revised(mdp, policy, 0.9), values["gamma"]),
        lambda: tabular.revised(mdp, policy, 0.9).pairs(values["n"], values["policy"]),
        lambda: tabular.revised(mdp, policy, 0.9).embedding(values["n"]),
    ]
    try:
        rng.choice(calls)()
    except ValueError:
        return True
    except (TypeError, IndexError) as problem:
        return _clear(problem)
    return False


def objective_call(rng: random.Random, folder: Path) -> bool:
    """The objectives from Python."""
    name = rng.choice([*objectives.OBJECTIVES, junk.word(rng)])
    options = {
        key: junk.anything(rng)
        for key in ("loss", "normalisation", "hidden", "pairing", "beta", junk.word(rng))
        if rng.random() < 0.15
    }
    latent = 4 if rng.random() < 0.8 else junk.anything(rng)
    batch: dict[str, Any] = {
        "z": torch.randn(6, 4),
        "action": torch.rand(6, 2),
        "reward": torch.rand(6),
        "discount": torch.full((6,), 0.9),
        "next_z": torch.randn(6, 4),
    }
    if rng.random() < 0.7:
        value = junk.anything(rng)
        is_array = isinstance(value, np.ndarray) and value.dtype.kind in "fib"
        batch[rng.choice(list(batch))] = torch.from_numpy(value) if is_array else value
    try:
        objectives.make_objective(name, latent, 2, **options)(**batch)
    except ValueError:
        return True
    except TypeError as problem:
        return _clear(problem)
    return False


def replay_call(rng: random.Random, folder: Path) -> bool:
    """The replay buffer from Python."""
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
            replay.add(*step.values(), np.zeros(2, np.float32), last=False)
        replay.sample(count)
        replay.sample_sequences(count, length, shift=shift)
    except (ValueError, MemoryError):  # the buffer says itself what memory is missing
        return True
    except TypeError as problem:
        return _clear(problem)
    return False


def run_folder(rng: random.Random, folder: Path) -> bool:
    """A finished run whose records were changed, beside one that is whole: page, eval, sweep."""
    study = folder / "study"
    shutil.rmtree(study, ignore_errors=True)
    shutil.copytree(_finished(folder), study)
    bad, good = sorted(path.parent for path in study.rglob("config.json"))
    names = ["config.json", "run.json", "result.json", "progress.json", "failures.json"]
    path = bad / rng.choice([*names, "eval.jsonl", "train.jsonl", "alarms.jsonl"])
    before = path.read_bytes() if path.exists() else b'{"failures": [{"checkpoint": 0}]}'
    if path.suffix == ".json" and rng.random() < 0.6:
        path.write_text(json.dumps(junk.changed(rng, json.loads(before))))
    else:
        path.write_bytes(junk.damaged(rng, before))
    page = write_report(read_study([study]), folder / "page").read_text()
    if str(good.relative_to(study).parts[0]) not in page:
        raise TracebackError(f"the whole run is not on the page beside {path.name}")
    configs = [tiny_config(study, **_WALK, method=method) for method in ("drqv2", "mico")]
    Sweep(configs, Place(str(study)))
    try:
        open_run(bad)
    except ValueError:
        return True
    return False


def checkpoint_files(rng: random.Random, folder: Path) -> bool:
    """A stopped run whose checkpoint was forged, with the right checksums."""
    stopped = folder / "stopped"
    shutil.rmtree(stopped, ignore_errors=True)
    shutil.copytree(_stopped(folder), stopped)
    config = tiny_config(stopped, **_WALK)
    (root,) = (config.directory / "checkpoints").glob("frame-*")
    manifest = json.loads((root / "manifest.json").read_text())
    name = rng.choice(list(manifest["files"]))
    path = (root.parent if name.startswith("replay/") else root) / name
    if name == "state.json" and rng.random() < 0.7:
        path.write_text(json.dumps(junk.changed(rng, json.loads(path.read_text()))))
    elif name == "agent.pt" and rng.random() < 0.7:
        state = torch.load(path, weights_only=True)
        state[rng.choice(list(state))] = junk.plain(rng)
        torch.save(state, path)
    else:
        path.write_bytes(junk.damaged(rng, path.read_bytes()))
    manifest["files"][name] = checkpoint._entry(path)
    if rng.random() < 0.2:
        manifest = junk.changed(rng, manifest)
    (root / "manifest.json").write_text(json.dumps(manifest))
    try:
        train(config, stop=lambda: True)
    except ValueError:
        return True
    return False


def _clear(problem: Exception) -> bool:
    """A TypeError is Python's own word for a wrong call; it must be raised at the door."""
    if not str(problem):
        raise problem
    return True


def _finished(folder: Path) -> Path:
    """Two small finished runs, made once."""
    out = folder.parent / "finished"
    if not out.exists():
        for method in ("drqv2", "mico"):
            assert train(tiny_config(out, **_WALK | {"frames": 160}, method=method))
    return out


def _stopped(folder: Path) -> Path:
    """A small run that was stopped, made once."""
    out = folder.parent / "stopped"
    if not out.exists():
        count = iter(range(20))
        train(tiny_config(out, **_WALK), stop=lambda: next(count, None) is None)
    return out


TARGETS: dict[str, Target] = {
    "command lines": command_line,
    "YAML grids": yaml_grid,
    "--set words": set_words,
    "configs": config_call,
    "MDP files": mdp_file,
    "exact metrics": tabular_call,
    "objectives": objective_call,
    "replay": replay_call,
    "run folders": run_folder,
    "checkpoints": checkpoint_files,
}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without warnings and log lines, which thousands of bad inputs would fill a screen with."""
    level = logging.getLogger("revbis").level
    logging.getLogger("revbis").setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.getLogger("revbis").setLevel(level)


def send(target: str, number: int, folder: Path) -> bool:
    """Sends input `number` of a target; the same number is always the same input."""
    place = folder / "input"
    place.mkdir(parents=True, exist_ok=True)
    with quiet():
        return TARGETS[target](random.Random(f"{target} {number}"), place)
