"""Grids: from files, from flags, and what is refused."""

from pathlib import Path

import pytest

from revbis.analysis.paper import SYSTEMS
from revbis.runs.config import Config
from revbis.sweep.grid import (
    Grid,
    choose_grid,
    grid_from,
    parse_settings,
    read_grid,
    shipped_grids,
)

PAPERS = {"table1", "metaworld", "ablation", "c-curves"}
SMALL = {"tasks": ["dmc:cheetah_run"], "methods": ["drqv2"]}


def test_every_combination_is_made_once_seed_by_seed():
    grid = Grid(("dmc:cheetah_run", "dmc:walker_run"), ("drqv2", "simsr"), (3, 1))
    configs = grid.configs(Path("out"))
    assert len({config.directory for config in configs}) == len(configs) == 8
    assert [config.seed for config in configs] == [3] * 4 + [1] * 4
    assert configs[1].directory == Path("out/cpu/dmc-cheetah_run/simsr/seed-3")


def test_overrides_have_folders_of_their_own_and_win_over_settings():
    grid = grid_from(
        SMALL
        | {
            "seeds": 7,
            "settings": {"frames": 100, "strides": [2, 2, 2, 1]},
            "overrides": {"long": {"frames": 300}, "wide": {"hidden": 99}},
        }
    )
    long, wide = grid.configs(Path("out"))
    assert (long.frames, long.seed, long.agent.strides) == (300, 7, (2, 2, 2, 1))
    assert (wide.frames, wide.agent.hidden) == (100, 99)
    assert long.directory == Path("out/long/cpu/dmc-cheetah_run/drqv2/seed-7")
    assert long.agent.hidden != 99


def test_a_file_is_read(tmp_path):
    path = tmp_path / "grid.yaml"
    path.write_text("tasks: [gym:CartPole-v1]\nmethods: simsr-rev\npreset: paper\n")
    grid = read_grid(str(path))
    assert (grid.tasks, grid.methods, grid.preset) == (
        ("gym:CartPole-v1",),
        ("simsr-rev",),
        "paper",
    )
    assert grid.seeds == (1, 2, 3)


@pytest.mark.parametrize("name", shipped_grids())
def test_grids_that_ship_are_whole(name):
    grid = read_grid(name)
    configs = grid.configs(Path("runs"))
    assert all(isinstance(config, Config) for config in configs)
    assert grid.preset == ("paper" if name in PAPERS else "cpu")
    ten = name.startswith("noisy-") or name == "mrq-representations"
    assert len(grid.seeds) == (10 if ten else 5 if name == "pixels-cpu" else 3)


def test_grids_of_the_paper_ship_in_both_scales():
    ours = {name for name in shipped_grids() if name.startswith("noisy-")}
    ours |= {"cheetah-cpu", "modes-cpu", "mrq-cpu", "mrq-representations", "pixels-cpu"}
    assert set(shipped_grids()) == PAPERS | {f"{name}-cpu" for name in PAPERS} | ours
    assert len(read_grid("table1").tasks) == 9
    for name in ("table1", "table1-cpu"):
        assert set(read_grid(name).methods) == set(SYSTEMS)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["tasks"], "must be a mapping"),
        ({"tasks": ["a"]}, "has no methods"),
        (SMALL | {"method": []}, "unknown method; did you mean 'methods'"),
        (SMALL | {"tasks": []}, "tasks is empty"),
        (SMALL | {"methods": ["drqv3"]}, "drqv3"),
        (SMALL | {"seeds": [1, 1]}, "seeds has 1 more than once"),
        (SMALL | {"settings": {"frame": 1}}, "unknown frame"),
        (SMALL | {"settings": {"seed": 1}}, "given elsewhere"),
        (SMALL | {"settings": {"horizon": 1}}, "settings: no method of the grid has horizon"),
        (SMALL | {"overrides": {"x": {"horizon": 1}}}, "overrides, x: no method of the grid has"),
        (SMALL | {"overrides": {"../x": {}}}, "cannot be the name of a folder"),
        (SMALL | {"overrides": {"x": 3}}, "must be a mapping"),
    ],
)
def test_what_cannot_be_run_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        grid_from(values)


def test_a_wrong_value_is_refused_before_anything_runs():
    grid = grid_from(SMALL | {"settings": {"batch_size": 0}})
    with pytest.raises(ValueError, match="batch_size"):
        grid.configs(Path("runs"))


def test_a_setting_of_some_methods_is_for_these():
    some = {"tasks": ["dmc:cheetah_run"], "methods": ["drqv2", "simsr", "tdmpc"], "seeds": 1}
    drqv2, simsr, tdmpc = grid_from(some | {"settings": {"mode": "joint"}}).configs(Path("runs"))
    assert simsr.agent.mode == "joint" and "mode" not in tdmpc.as_dict()
    assert drqv2.agent.mode == "balanced"  # the preset's, without effect
    grid = grid_from(some | {"settings": {"mode": "nonsense"}})
    with pytest.raises(ValueError, match="cheetah_run, simsr: mode must be one of"):
        grid.configs(Path("runs"))


def test_a_set_value_must_be_for_a_method_that_is_left(tmp_path):
    path = tmp_path / "grid.yaml"
    path.write_text("{tasks: [dmc:cheetah_run], methods: [drqv2, tdmpc], settings: {horizon: 4}}")
    assert choose_grid(str(path), methods=["drqv2"]).settings == {"horizon": 4}  # of the file
    assert choose_grid(str(path), settings=["hidden=9"]).settings["hidden"] == 9
    assert choose_grid(str(path), settings=["channels=9"]).settings["channels"] == 9
    with pytest.raises(ValueError, match="--set: no method of the grid has mode: leave it out"):
        choose_grid(str(path), methods=["drqv2", "tdmpc"], settings=["mode=joint"])


def test_overrides_can_be_chosen_by_name():
    whole = choose_grid("mrq-representations")
    some = choose_grid("mrq-representations", overrides=["laws", "model"], seeds=[3])
    assert some.overrides == {name: whole.overrides[name] for name in ("model", "laws")}
    runs = [(config.out.name, config.seed) for config in some.configs(Path("runs"))]
    assert runs == [("model", 3), ("laws", 3)]
    with pytest.raises(ValueError, match=r"--overrides must be one of model, .*'law'.*laws"):
        choose_grid("mrq-representations", overrides=["law"])
    with pytest.raises(ValueError, match="mrq-cpu has no overrides to choose from"):
        choose_grid("mrq-cpu", overrides=["laws"])
    with pytest.raises(ValueError, match="--overrides chooses among those of a grid"):
        choose_grid(None, tasks=["dmc:cheetah_run"], methods=["mrq"], overrides=["laws"])


def folders(methods, overrides):
    """Below "out", the folders of a grid's runs with their weight of the objective, by method."""
    grid = grid_from({"tasks": "a:b", "methods": methods, "seeds": 1, "overrides": overrides})
    runs: dict[str, list[str]] = {method: [] for method in methods}
    for config in grid.configs(Path("out")):
        runs[config.method].append(config.out.relative_to("out").as_posix())
    return runs


def test_a_method_without_the_overrides_is_trained_once_beside_their_folders():
    weights = {"light": {"objective_weight": 0.1}, "heavy": {"objective_weight": 10.0}}
    assert folders(["drqv2", "simsr"], weights) == {"drqv2": ["."], "simsr": ["light", "heavy"]}
    base = weights | {"base": {}}
    assert folders(["drqv2", "simsr"], base) == {
        "drqv2": ["base"],
        "simsr": ["light", "heavy", "base"],
    }


def test_overrides_that_are_the_same_for_a_method_are_one():
    sizes = {
        "a": {"hidden": 64, "objective_weight": 1.0},
        "b": {"hidden": 64, "objective_weight": 9.0},
        "c": {"beta": 0.5},
    }
    assert folders(["drqv2", "simsr", "mico"], sizes) == {
        "drqv2": ["a", "."],
        "simsr": ["a", "b", "."],
        "mico": ["a", "b", "c"],
    }


def test_what_is_no_yaml_is_told_in_one_line(tmp_path):
    path = tmp_path / "grid.yaml"
    path.write_text("tasks: [a\nb: {")
    with pytest.raises(ValueError, match="is not YAML") as caught:
        read_grid(str(path))
    assert "\n" not in str(caught.value)


def test_settings_from_words():
    words = ["frames=20000", "learning-rate=1e-4", "tensorboard=false", "strides=[2, 1, 1, 1]"]
    assert parse_settings(words) == {
        "frames": 20000,
        "learning_rate": "1e-4",
        "tensorboard": False,
        "strides": [2, 1, 1, 1],
    }
    for word, message in (("frames", "NAME=VALUE"), ("framse=1", "unknown framse")):
        with pytest.raises(ValueError, match=message):
            parse_settings([word])


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("tasks: [a]\nmethods: [mico]\nseeds: 1\nseeds: 2\n", "seeds"),
        ("tasks: [a]\nmethods: [mico]\nsettings: {frames: 1, frames: 2}\n", "frames"),
    ],
)
def test_a_key_that_is_there_twice_is_refused(tmp_path, text, key):
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"grid.yaml is not YAML: {key} is there twice"):
        read_grid(str(path))


def test_many_seeds_are_compared_once_each(monkeypatch):
    """A thousand seeds cost no million comparisons."""
    compared = []

    class Seed(int):
        def __eq__(self, other):
            compared.append(other)
            return int(self) == int(other)

        __hash__ = int.__hash__

    seeds = tuple(map(Seed, range(1000)))
    monkeypatch.setattr("revbis.sweep.grid.schema.validate_fields", lambda grid: None)
    Grid(("dmc:cheetah_run",), ("drqv2",), seeds)
    assert len(compared) < 10_000
