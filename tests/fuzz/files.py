"""Files: grids, MDPs, folders of runs and checkpoints, each with something changed in it."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from pathlib import Path

import numpy as np
import torch
from tests.fuzz import junk
from tests.fuzz.judge import TracebackError, refused
from tests.fuzz.runs import finished, stopped, walk
from tests.runs import stop_after

from revbis import tabular
from revbis.analysis.page import write_page
from revbis.analysis.study import read_study
from revbis.runs import checkpoint, preflight
from revbis.runs.config import setting_names
from revbis.runs.run import open_run, train
from revbis.sweep.driver import Sweep, SweepStorage
from revbis.sweep.grid import parse_settings, read_grid


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
        name = rng.choice(sorted(setting_names()))
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
        Sweep(configs[:20], SweepStorage(str(folder / "out")))
    except Exception as problem:
        return refused(problem)
    return False


def set_words(rng: random.Random, folder: Path) -> bool:
    """Words after --set."""
    name = rng.choice([*sorted(setting_names()), junk.word(rng)])
    words = [f"{name}={junk.word(rng)}", junk.word(rng)][: rng.randrange(1, 3)]
    try:
        walk(folder).with_settings(**parse_settings(words))
    except Exception as problem:
        return refused(problem)
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
    except Exception as problem:
        return refused(problem)
    return False


def run_folder(rng: random.Random, folder: Path) -> bool:
    """A finished run whose records were changed, beside one that is whole: page, eval, sweep."""
    study = folder / "study"
    shutil.copytree(finished(folder), study)
    bad, good = sorted(path.parent for path in study.rglob("config.json"))
    names = ["config.json", "run.json", "result.json", "progress.json", "failures.json"]
    path = bad / rng.choice([*names, "eval.jsonl", "train.jsonl", "alarms.jsonl"])
    before = path.read_bytes() if path.exists() else b'{"failures": [{"checkpoint": 0}]}'
    if path.suffix == ".json" and rng.random() < 0.6:
        path.write_text(json.dumps(junk.changed(rng, json.loads(before))))
    else:
        path.write_bytes(junk.damaged(rng, before))
    page = write_page(read_study([study]), folder / "page").read_text()
    if good.parent.name not in page:
        raise TracebackError(f"the whole run is not on the page beside {path.name}")
    configs = [walk(study, method=method) for method in ("drqv2", "mico")]
    try:
        Sweep(configs, SweepStorage(str(study))).check(here=True)
        open_run(bad, trust=True)
        train(configs[0], stop=lambda: True)
    except Exception as problem:
        return refused(problem)
    return False


def checkpoint_files(rng: random.Random, folder: Path) -> bool:
    """A stopped run whose checkpoint was forged, with the right checksums."""
    shutil.copytree(stopped(folder), folder / "stopped")
    config = walk(folder / "stopped")
    (root,) = (config.directory / "checkpoints").glob("frame-*")
    manifest = json.loads((root / "manifest.json").read_text())
    name = rng.choice(list(manifest["files"]))
    path = (root.parent if name.startswith("replay/") else root) / name
    if name == "state.json" and rng.random() < 0.7:
        path.write_text(json.dumps(junk.changed(rng, json.loads(path.read_text()))))
    elif name == "agent.pt" and rng.random() < 0.7:
        state = torch.load(path, weights_only=True)
        _change_state(rng, state)
        torch.save(state, path)
    elif name.endswith(".npz") and rng.random() < 0.7:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        arrays[rng.choice(list(arrays))] = junk.array(rng)
        np.savez(path, **arrays)
    else:
        path.write_bytes(junk.damaged(rng, path.read_bytes()))
    manifest["files"][name] = checkpoint._entry(path.read_bytes())
    if rng.random() < 0.2:
        manifest = junk.changed(rng, manifest)
    (root / "manifest.json").write_text(json.dumps(manifest))
    before = (config.directory / "eval.jsonl").read_bytes()
    with contextlib.suppress(ValueError):
        open_run(config.directory, trust=True)
    try:
        train(config, **stop_after(7))  # an update or two
    except Exception as problem:
        if not (config.directory / "eval.jsonl").read_bytes().startswith(before):
            raise TracebackError("records were lost") from problem
        return refused(problem)
    return False


def _change_state(rng: random.Random, state: dict[str, object]) -> None:
    """Changes an agent's state somewhere: a part, or a tensor deep in it."""
    inner = state
    while rng.random() < 0.7:
        deeper = [each for each in inner.values() if isinstance(each, dict) and each]
        if not deeper:
            break
        inner = rng.choice(deeper)
    key = rng.choice(list(inner))
    kind = rng.randrange(3)
    if kind == 0:
        inner[key] = junk.plain(rng)
    elif kind == 1:
        del inner[key]
    else:
        inner[key] = torch.full(rng.choice([(), (1,), (3, 3), (0,)]), rng.choice([1.0, np.nan]))
