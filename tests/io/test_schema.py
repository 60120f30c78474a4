"""The door for values from outside."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from revbis.io import schema
from revbis.runs.config import Config
from revbis.runs.presets import preset_config
from revbis.sweep.grid import grid_from, parse_settings

CONFIG = preset_config("cpu", "dmc:cheetah_run")


@pytest.mark.parametrize("value", [100_000, 1e5, "1e5", "100000", np.int64(10**5), np.float32(1e5)])
def test_a_count_is_the_same_from_file_flag_and_python(value):
    direct = CONFIG.with_settings(frames=value)
    plain = value.item() if isinstance(value, np.generic) else value
    grid = {"tasks": [CONFIG.task], "methods": ["drqv2"], "settings": {"frames": plain}}
    (swept,) = grid_from(grid | {"seeds": [1]}).configs(CONFIG.out)
    settings = parse_settings([f"frames={plain}"])
    (flagged,) = grid_from(grid | {"seeds": [1], "settings": settings}).configs(CONFIG.out)
    read = Config.from_dict(CONFIG.as_dict() | {"frames": plain})
    for config in (direct, swept, flagged, read):
        assert config.frames == 100_000 and type(config.frames) is int
        assert config == direct


@pytest.mark.parametrize("value", [1e-4, "1e-4", "0.0001", np.float64(1e-4)])
def test_a_number_is_the_same_from_file_and_python(value):
    assert CONFIG.with_settings(learning_rate=value) == CONFIG.with_settings(learning_rate=1e-4)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("frames", True, "frames must be a whole number, got True"),
        ("frames", 1.5, "frames must be a whole number, got 1.5"),
        ("frames", 10**23, "frames must be at most 1,000,000,000,000, got 1000"),
        ("frames", 1e23, r"frames must be at most 1,000,000,000,000, got 1e\+23"),
        ("frames", "1e23", "frames must be at most 1,000,000,000,000, got '1e23'"),
        ("frames", float("inf"), "frames must be a whole number, got inf"),
        ("threads", 1e23, "threads must be at most 4,096"),
        ("strides", (2, 2, 1, "1e23"), r"strides\[3\] must be at most 16, got '1e23'"),
        ("frames", "many", "frames must be a whole number, got 'many'"),
        ("frames", None, "frames must be a whole number, got None"),
        ("frames", [1], r"frames must be a whole number, got \[1\]"),
        ("mode", None, "mode must be one of joint, alternating, balanced, got None"),
        ("preset", "paperr", "preset must be one of paper, cpu, got 'paperr'; did you mean"),
        ("normalisation", "maybe", "normalisation must be true or false or nothing, got 'maybe'"),
        ("tensorboard", 3, "tensorboard must be true or false, got 3"),
        ("strides", 5, "strides must be a list, got 5"),
        ("strides", (2, 2), "strides: expected array of length 4, got 2"),
        ("strides", (2, 2, 1, 10**9), r"strides\[3\] must be at most 16"),
        ("discount", float("nan"), "discount must be at least 0, got nan"),
        ("noise_end", float("inf"), "noise_end must be at most"),
        ("hidden", 10**9, "hidden must be at most 65,536"),
        ("out", 3, "out must be a path, got 3"),
        ("out", "a\0b", "out must be a path"),
        ("task", "", "task: expected str of length >= 1"),
        ("learning_rate", 1j, "learning_rate must be a number, got 1j"),
    ],
)
def test_what_is_not_of_its_type_is_refused(name, value, message):
    with pytest.raises(ValueError, match=message):
        CONFIG.with_settings(**{name: value})
    with pytest.raises(ValueError, match=message):
        Config.from_dict(CONFIG.as_dict() | {name: value})


def test_messages_stay_short_whatever_comes():
    nested = []
    for _ in range(100_000):
        nested = [nested]
    for value in ("x" * 10**6, ["y"] * 10**6, nested, 10**4000):
        with pytest.raises(ValueError) as caught:
            CONFIG.with_settings(frames=value)
        assert len(str(caught.value)) < 400


@dataclass(frozen=True)
class _Pair:
    first: schema.Count
    second: schema.Discount = 0.5

    def __post_init__(self):
        schema.validate_fields(self)


def test_settle_converts_every_field():
    assert _Pair("3", "0.25") == _Pair(3, 0.25)
    with pytest.raises(ValueError, match="second must be below 1, got 1"):
        _Pair(3, 1)


def test_json_is_checked_as_it_is_read():
    result = {"frames": 5, "mean_return": 1.5, "more": []}
    assert schema.parse_json(json.dumps(result), schema.ResultFile, "it")["frames"] == 5
    for text, message in (
        ("[]", r"it must be a mapping, got \[\]"),
        ("{", "it is not JSON"),
        ("[" * 100_000, "it is nested too deeply"),
        ('{"frames": "x", "mean_return": 1}', "it.frames must be a whole number, got 'x'"),
        ('{"mean_return": 1}', "it: object missing required field frames"),
        ('{"frames": -1, "mean_return": 1}', "it.frames must be at least 0, got -1"),
    ):
        with pytest.raises(ValueError, match=message):
            schema.parse_json(text, schema.ResultFile, "it")


def test_numbers_that_json_does_not_know_come_back():
    line = '{"frames": 5, "mean_return": "nan", "returns": ["inf", 1]}'
    record = schema.parse_json(line, schema.EvaluationLine, "it")
    assert np.isnan(record["mean_return"]) and record["returns"] == [float("inf"), 1.0]


def test_unknown_keys_are_named_with_the_nearest():
    with pytest.raises(ValueError, match="settings: unknown frame; did you mean 'frames'"):
        schema.check_keys({"frame": 1}, ["frames", "seed"], "settings")
    with pytest.raises(ValueError, match="settings must be a mapping of settings, got 3"):
        schema.check_keys(3, [], "settings")


def test_settings_are_read_without_torch():
    code = (
        "import sys; import revbis.runs.presets, revbis.sweep.grid, revbis.io.schema;"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=400)


def test_paths_are_paths():
    assert CONFIG.with_settings(out="here").out == Path("here")
