"""The border: validates all values from outside, of flags, YAML, files and Python calls.

A type defines the allowed values and has its limits; a setting and the argument that takes it share
one. `convert` returns a value of the type or raises a ValueError with the requirement: `1e5` and
`"1e5"` are the same count wherever they come from, `true` is not a number, and sizes have upper
limits. `integer`, `number` and the others are for arguments of Python calls. Based on msgspec.
"""

from __future__ import annotations

import fractions
import json
import math
import re
import reprlib
from collections.abc import Hashable, Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypedDict,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

T = TypeVar("T")
MOST = 10**12  # beyond any present machine
_MOST_LISTED = 10  # names in a message that suggests one of them

# Numbers of things.
Count = Annotated[int, Meta(ge=1, le=MOST)]
CountOrZero = Annotated[int, Meta(ge=0, le=MOST)]
Seed = Annotated[int, Meta(ge=0, le=2**32 - 1)]
Batch = Annotated[int, Meta(ge=1, le=10**6)]
UpTo4096 = Annotated[int, Meta(ge=1, le=4096)]
# Widths of networks and shapes.
Size = Annotated[int, Meta(ge=1, le=65_536)]
SizeOrZero = Annotated[int, Meta(ge=0, le=65_536)]
Stride = Annotated[int, Meta(ge=1, le=16)]
# Observations.
Side = Annotated[int, Meta(ge=8, le=2048)]
FrameStack = Annotated[int, Meta(ge=1, le=100)]
ActionRepeat = Annotated[int, Meta(ge=1, le=1000)]
Shift = Annotated[int, Meta(ge=0, le=4096)]
NoiseCount = Annotated[int, Meta(ge=0, le=10_000)]
Strength = Annotated[float, Meta(ge=0.001, le=1)]  # weaker noise would round to none
# Other numbers. A description replaces the limits in messages.
# msgspec takes > 0 as at least the least denormal number, which is 0 where denormals are flushed.
_LEAST = 1e-300
Above = Annotated[float, Meta(ge=_LEAST, le=1e12)]
AboveOrZero = Annotated[float, Meta(ge=0, le=1e12)]
Share = Annotated[float, Meta(ge=_LEAST, le=1)]
Fraction = Annotated[float, Meta(ge=_LEAST, lt=1)]
Discount = Annotated[float, Meta(ge=0, lt=1, description="in [0, 1)")]
Text = Annotated[str, Meta(min_length=1, max_length=1000)]
FOLDER_NAME = r"^[\w=+,-][\w=+,. -]{0,99}$"  # one part of a path, and not hidden
FolderName = Annotated[str, Meta(pattern=FOLDER_NAME)]


class ResultFile(TypedDict):
    """result.json: the result of a finished run."""

    frames: CountOrZero
    mean_return: float
    seconds: NotRequired[float]


class ProgressFile(TypedDict, total=False):
    """progress.json: the progress of a running attempt."""

    attempt: CountOrZero
    frames: CountOrZero
    frames_per_second: float
    seconds: float
    mean_return: float | None
    status: dict[str, float | None]
    c: float | None  # of runs before there was a status


class Failure(TypedDict):
    """A failed attempt: the frame of the newest checkpoint, and the reason."""

    checkpoint: CountOrZero
    text: str
    final: NotRequired[bool]


class FailuresFile(TypedDict):
    """failures.json: the failed attempts at a run."""

    failures: list[Failure]


class EvaluationLine(TypedDict):
    """A line of eval.jsonl."""

    frames: CountOrZero
    agent_steps: NotRequired[CountOrZero]
    updates: NotRequired[CountOrZero]
    seconds: NotRequired[float]
    mean_return: float
    returns: NotRequired[list[float]]
    success_any: NotRequired[list[bool | None]]
    success_last: NotRequired[list[bool | None]]
    train_mean_return: NotRequired[float]  # on the training variants, where there are any
    train_returns: NotRequired[list[float]]
    train_success_any: NotRequired[list[bool | None]]
    train_success_last: NotRequired[list[bool | None]]
    yardsticks: NotRequired[dict[str, float]]  # where they were measured, too
    status: NotRequired[dict[str, float | None]]
    c: NotRequired[float | None]  # of runs before there was a status


class YardsticksFile(TypedDict):
    """yardsticks.json: the yardsticks of a run at its newest checkpoint."""

    frames: CountOrZero
    episodes: CountOrZero
    seed: CountOrZero
    yardsticks: dict[str, float]


class AlarmLine(TypedDict):
    """A line of alarms.jsonl."""

    frames: NotRequired[CountOrZero]
    name: str
    text: NotRequired[str]


class AboutFile(TypedDict, total=False):
    """run.json: versions, revision, command and machine of a run.

    Processor, threads and blas are of the first start; runs of earlier versions have none.
    """

    environment: dict[str, Any]
    versions: dict[str, str]
    revision: str | None
    command: str
    machine: str
    processor: str
    threads: dict[str, CountOrZero]
    blas: dict[str, str]


class FileEntry(TypedDict):
    """A file that a checkpoint needs."""

    bytes: CountOrZero
    digest: str


class Manifest(TypedDict):
    """manifest.json of a checkpoint."""

    format: str
    files: dict[str, FileEntry]


class ExportFile(TypedDict):
    """agent.json of an export: everything but the weights."""

    format: str
    config: dict[str, Any]
    frames: CountOrZero
    observation_shape: Annotated[list[Size], Meta(min_length=1, max_length=3)]
    action_size: Size
    discrete: NotRequired[bool]  # exports of before have none
    numbers: dict[str, int | float]
    weights: FileEntry
    versions: dict[str, str]
    revision: str | None


def convert(value: object, kind: type[T] | Any, name: str) -> T:
    """The value, converted to the type.

    Args:
        value: From a flag, a file or a call.
        kind: A type with its limits.
        name: Name of the value, for messages.

    Raises:
        ValueError: If it is not of the type; with the requirement and the value.
    """
    plain = [*map(_plain, value)] if isinstance(value, list | tuple) else _plain(value)
    if kind is Path:
        if not isinstance(value, str | Path) or "\0" in str(value):
            raise ValueError(f"{name} must be a path, got {shown(value)}")
        return cast("T", Path(value))
    try:
        return cast("T", msgspec.convert(plain, kind, strict=False))
    except (msgspec.ValidationError, RecursionError) as problem:
        raise ValueError(_message(plain, kind, name, problem)) from None


def validate_fields(record: object, part: type | None = None) -> None:
    """Converts every field of a frozen dataclass to its type; for its `__post_init__`.

    Args:
        record: The dataclass.
        part: A base class, to convert its fields only.

    Raises:
        ValueError: For the first field that is not of its type.
    """
    for name, kind in _hints(part or record.__class__).items():
        object.__setattr__(record, name, convert(getattr(record, name), kind, name))


def parse_json(text: str | bytes, kind: type[T] | Any, name: str) -> T:
    """The value of a JSON text.

    Raises:
        ValueError: If it is not JSON, or not of the type.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply") from None
    except ValueError as problem:
        raise ValueError(f"{name} is not JSON: {problem}") from None
    return cast("T", convert(value, kind, name))


def check_keys(values: object, known: Iterable[str], name: str) -> dict[str, Any]:
    """A mapping whose keys are all known.

    Raises:
        ValueError: If it is not a mapping, or has other keys.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{name} must be a mapping of settings, got {shown(values)}")
    names = list(known)
    unknown = sorted(str(key) for key in values if key not in names)
    if unknown:
        listed = ", ".join(f"{key:.60}" for key in unknown[:5])
        raise ValueError(f"{name}: unknown {listed}{nearest(unknown[0], names)}")
    return dict(values)


def integer(value: int, name: str, least: int, most: int = MOST) -> int:
    """A whole number from `least` to `most`."""
    return cast("int", convert(value, _between(least, most), name))


def number(value: Any, name: str) -> float:
    """One real number."""
    return cast("float", convert(value, float, name))


def discount(value: float, name: str = "gamma") -> float:
    """A discount factor in [0, 1)."""
    return cast("float", convert(value, Discount, name))


def positive(value: float, name: str) -> float:
    """A number above zero."""
    return cast("float", convert(value, Above, name))


def flag(value: bool, name: str) -> bool:
    """True or False; other truthy or falsy values are refused."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def choice(value: str, options: Iterable[str], name: str) -> str:
    """One of the named options; for a typo, the error suggests the nearest name."""
    names = list(options)
    if isinstance(value, str) and value in names:
        return value
    raise ValueError(not_a_choice(value, names, name))


def not_a_choice(value: object, options: Iterable[str], name: str) -> str:
    """The message for a value that is not one of the options."""
    names = list(options)
    near = nearest(value, names)
    known = f"{len(names)} names" if near and len(names) > _MOST_LISTED else ", ".join(names)
    return f"{name} must be one of {known}, got {shown(value)}{near}"


def finite_matrix(value: object, shape: tuple[int, ...], name: str) -> NDArray[np.float64]:
    """A float64 array of this shape, without NaN or infinity."""
    array = real_array(value, name)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    array = array.astype(np.float64, copy=False)
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        where = tuple(int(i) for i in bad[0])
        raise ValueError(
            f"{name} must be finite, but {len(bad)} of its entries are not; "
            f"the first is {name}{list(where)} = {array[where]}"
        )
    return array


def real_array(value: object, name: str) -> NDArray[Any]:
    """An array of integers or floats; complex numbers, booleans, texts and objects are refused."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # rows of different lengths, for example
        raise ValueError(
            f"{name} must be an array of numbers with rows of equal length, got {shown(value)}"
        ) from None
    if array.dtype.kind not in "iuf" and array.size:
        came = _ARRAYS.get(array.dtype.kind, f"dtype {array.dtype}")
        if array.dtype.kind == "O" and array.ndim == 0:
            came = shown(array.item())
        raise ValueError(f"{name} must hold real numbers, got {came}")
    return array


def reason(problem: Exception) -> str:
    """Why something failed, in a line: the message of a ValueError, others with their type."""
    kind = "" if isinstance(problem, ValueError) else f"{type(problem).__name__}: "
    lines = f"{kind}{problem}".splitlines() or [type(problem).__name__]
    return f"{lines[0]:.300}"


def nearest(value: object, names: Iterable[str]) -> str:
    """A suggestion of the nearest name, for the end of a message; empty if none is near."""
    near = get_close_matches(str(value), list(names), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def shown(value: object) -> str:
    """A value for a message, at most one line long."""
    return _SHORT.repr(value)


def _plain(value: Any) -> Any:
    """A scalar of NumPy or torch, or a fraction, as a number of Python."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    return float(value) if isinstance(value, fractions.Fraction) else value


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


@cache
def _between(least: int, most: int) -> Any:
    return Annotated[int, Meta(ge=least, le=most)]


def _message(value: object, kind: object, name: str, problem: Exception) -> str:
    """Translates msgspec's message into the wording of this package."""
    text, _, where = str(problem).partition(" - at `$")
    place, part = name + where.rstrip("`"), _part(value, where)
    if (options := _options(kind)) and not where:
        return not_a_choice(value, options, name)
    if (own := _description(kind)) and text.startswith("Expected `float` "):
        return f"{place} must be {own}, got {shown(part)}"
    if limit := re.fullmatch(r"Expected `\w+` (>=|>|<=|<) (.+)", text):
        number = float(limit[2])
        bound = "above 0" if number == _LEAST else f"{_RELATIONS[limit[1]]} {number:,.15g}"
        return f"{place} must be {bound}, got {shown(part)}"
    if "matching regex" in text:
        return (
            f"{place} must be a folder's name of letters, digits and = + , . _ -, got {shown(part)}"
        )
    if expected := re.match(r"Expected `([^`]+)`, got", text):
        if "int" in expected[1].split(" | ") and _is_too_large(part):  # to msgspec not an int
            return f"{place} must be at most {_most(kind):,}, got {shown(part)}"
        words = " or ".join(_NAMES.get(each, each) for each in expected[1].split(" | "))
        return f"{place} must be {words}, got {shown(part)}"
    if text == "Number out of range":
        return f"{place} must be a finite number, got {shown(part)}"
    reason = text.replace("`", "") or "nested too deeply"
    return f"{place}: {reason[0].lower()}{reason[1:]}"


def _part(value: Any, where: str) -> Any:
    """The part of a value at msgspec's path, as far as the path can be followed."""
    for key, number in re.findall(r"\.(\w+)|\[(\d+)\]", where):
        try:
            value = value[key] if key else value[int(number)]
        except (LookupError, TypeError):
            return value
    return value


def _is_too_large(value: object) -> bool:
    """Whether a float, or a text that is one, exceeds every count: 1e23, for example."""
    if not isinstance(value, (float, str)):
        return False
    try:
        return MOST < float(value) < math.inf
    except ValueError:
        return False


def _most(kind: object) -> int:
    """The upper limit of a number's type, also inside an optional or a list."""
    own = [part.le for part in get_args(kind) if isinstance(part, Meta) and part.le is not None]
    return int(own[0]) if own else min((_most(part) for part in get_args(kind)), default=MOST)


def _description(kind: object) -> str | None:
    """The requirement in the words of the type, if it has any."""
    return next((part.description for part in get_args(kind) if isinstance(part, Meta)), None)


def _options(kind: object) -> list[str]:
    """The options of a Literal, also inside an optional, or beside a fraction."""
    if get_origin(kind) is Literal:
        return [str(option) for option in get_args(kind)]
    if get_origin(kind) in (Union, UnionType):
        options = [option for part in get_args(kind) for option in _options(part)]
        beside = options and Fraction in get_args(kind)
        return [*options, "a number above 0 and below 1"] if beside else options
    return []


_RELATIONS = {">=": "at least", ">": "above", "<=": "at most", "<": "below"}
_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}
_ARRAYS = {"c": "complex numbers", "b": "booleans", "U": "texts", "S": "texts"}
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80
_SHORT.maxlong = 60
