"""The border: values from outside."""

import json
import subprocess
import sys
from dataclasses import dataclass
from fractions import Fraction as Half
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

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
        ("frames", 0, "frames must be at least 1"),
        ("discount", 1.0, r"discount must be in \[0, 1\), got 1"),
        ("quality", "ful", "did you mean 'full'"),
        ("frames", 1.5, "frames must be a whole number, got 1.5"),
        ("frames", 10**23, "frames must be at most 1,000,000,000,000, got 1000"),
        ("frames", "1e23", "frames must be at most 1,000,000,000,000, got '1e23'"),
        ("frames", float("inf"), "frames must be a whole number, got inf"),
        ("strides", (2, 2, 1, "1e23"), r"strides\[3\] must be at most 16, got '1e23'"),
        ("frames", [1], r"frames must be a whole number, got \[1\]"),
        ("mode", None, "mode must be one of joint, alternating, balanced, decoupled, got None"),
        ("normalisation", "maybe", "normalisation must be true or false or nothing, got 'maybe'"),
        ("strides", 5, "strides must be a list, got 5"),
        ("strides", (2, 2), "strides: expected array of length 4, got 2"),
        ("discount", float("nan"), r"discount must be in \[0, 1\), got nan"),
        ("noise_end", float("inf"), "noise_end must be at most"),
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


def test_validate_fields_converts_every_field():
    assert _Pair("3", "0.25") == _Pair(3, 0.25)
    with pytest.raises(ValueError, match=r"second must be in \[0, 1\), got 1"):
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


@pytest.mark.parametrize("value", [0, 0.5, np.float32(0.25), "0.9", np.array(0.5), Half(1, 2)])
def test_a_discount_is_a_float(value):
    result = schema.discount(value)
    assert type(result) is float
    assert result == float(value)


@pytest.mark.parametrize(
    ("check", "values", "message"),
    [
        (schema.discount, [1, 1.5, -0.1, np.nan, np.inf], r"it must be in \[0, 1\), got"),
        (schema.discount, [None, "high", [0.5, 0.6], True, 1j], "it must be a number, got"),
        (schema.number, [10**400, "1e999"], "it must be a finite number, got"),
        (schema.positive, [0, -1, np.nan], "it must be above 0, got"),
        (schema.positive, [np.inf, 1e13], "it must be at most 1,000,000,000,000, got"),
        (schema.flag, ["yes", 1, 0.0, None, [], np.ones(2)], "it must be True or False, got"),
        (partial(schema.integer, least=2), [1, -5, np.int64(1)], "it must be at least 2, got"),
        (partial(schema.integer, least=2, most=9), [10, 10**23], "it must be at most 9, got"),
        (partial(schema.integer, least=2), [2.5, "x", None, True, [3]], "a whole number, got"),
    ],
)
def test_arguments_of_python_calls(check, values, message):
    for value in values:
        with pytest.raises(ValueError, match=message):
            check(value, name="it")


def test_what_is_allowed_is_returned():
    assert schema.positive(1e-300, "tol") == 1e-300
    assert schema.integer(np.array(3), "it", 1) == 3
    assert CONFIG.with_settings(out="here").out == Path("here")
    assert schema.flag(True, "it") is True and schema.flag(np.bool_(False), "it") is False


def test_choice_returns_the_name_or_the_nearest():
    assert schema.choice("mico", ("mico", "revised"), "metric") == "mico"
    with pytest.raises(ValueError, match=r"one of mico, revised, got 'revisd'; did you mean 'rev"):
        schema.choice("revisd", ("mico", "revised"), "metric")
    many = [f"name{number}" for number in range(11)]
    with pytest.raises(ValueError, match=r"must be one of 11 names, got 'nam3'; did you mean '"):
        schema.choice("nam3", many, "method")
    with pytest.raises(ValueError, match=r"must be one of name0, .*name10, got 'x'$"):
        schema.choice("x", many, "method")
    with pytest.raises(ValueError, match=r"metric must be one of mico, revised, got [^;]*$"):
        schema.choice(None, ("mico", "revised"), "metric")


def test_finite_matrix_converts():
    result = schema.finite_matrix([[1, 2]], (1, 2), "d")
    assert result.dtype == np.float64
    assert result.tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[1.0, 2.0, 3.0]], r"d must have shape \(1, 2\), got \(1, 3\)"),
        ([["a", "b"]], "d must hold real numbers, got texts"),
        ([[1.0], [1.0, 2.0]], "d must be an array of numbers with rows of equal length"),
        ([[1j, 2.0]], "d must hold real numbers, got complex numbers"),
        ([[True, False]], "d must hold real numbers, got booleans"),
        (None, "d must hold real numbers, got None"),
        ([[np.inf, np.nan]], r"2 of its entries are not; the first is d\[0, 0\] = inf"),
    ],
)
def test_finite_matrix_refuses(value, message):
    with pytest.raises(ValueError, match=message):
        schema.finite_matrix(value, (1, 2), "d")


def test_a_reason_is_one_line():
    assert schema.reason(ValueError("it must be 1\nor 2")) == "it must be 1"
    assert schema.reason(KeyError("networks")) == "KeyError: 'networks'"
    assert schema.reason(ValueError()) == "ValueError"
    assert len(schema.reason(ValueError("x" * 1000))) == 300


def test_zero_is_not_above_zero_where_denormals_are_flushed() -> None:
    torch.set_flush_denormal(True)
    try:
        with pytest.raises(ValueError, match="it must be above 0, got 0"):
            schema.positive(0.0, "it")
    finally:
        torch.set_flush_denormal(False)
