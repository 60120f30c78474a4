"""Argument checks.

Each returns the value in its canonical form or raises a ValueError with the requirement and the
value.
"""

import operator
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray


def discount(value: float, name: str = "gamma") -> float:
    """A discount factor in [0, 1)."""
    value = number(value, name)
    if not 0.0 <= value < 1.0:
        raise ValueError(f"{name} must be in [0, 1), got {value:g}")
    return value


def positive(value: float, name: str) -> float:
    """A finite number above zero."""
    value = number(value, name)
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number above 0, got {value:g}")
    return value


def number(value: Any, name: str) -> float:
    """One real number."""
    try:
        if np.ndim(value) or isinstance(value, (bool, np.bool_)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must be a number, got {value!r:.80}") from None


def whole(value: int, name: str, least: int, most: int = 10**12) -> int:
    """A whole number from `least` to `most`."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        count = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, got {value!r:.80}") from None
    if count < least:
        raise ValueError(f"{name} must be at least {least}, got {count}")
    if count > most:
        raise ValueError(f"{name} must be at most {most:,}, got {count!s:.80}")
    return count


def flag(value: bool, name: str) -> bool:
    """True or False; other truthy or falsy values are refused."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, got {value!r:.80}")
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
    return f"{name} must be one of {', '.join(names)}, got {value!r:.80}{nearest(value, names)}"


def reason(problem: Exception) -> str:
    """Why something failed, in a line: the message of a ValueError, others with their type."""
    kind = "" if isinstance(problem, ValueError) else f"{type(problem).__name__}: "
    lines = f"{kind}{problem}".splitlines() or [type(problem).__name__]
    return f"{lines[0]:.300}"


def nearest(value: object, names: Iterable[str]) -> str:
    """A suggestion of the nearest name, for the end of a message; empty if none is near."""
    near = get_close_matches(str(value), list(names), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


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
            f"{name} must be an array of numbers with rows of equal length, got {value!r:.80}"
        ) from None
    if array.dtype.kind not in "iuf" and array.size:
        raise ValueError(f"{name} must hold real numbers, got {_kind(array)}")
    return array


def _kind(array: NDArray[Any]) -> str:
    names = {"c": "complex numbers", "b": "booleans", "U": "texts", "S": "texts"}
    if array.dtype.kind == "O" and array.ndim == 0:
        return f"{array.item()!r:.80}"
    return names.get(array.dtype.kind, f"dtype {array.dtype}")
