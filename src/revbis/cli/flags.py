"""Parses numbers and paths on the command line, in the same way for every command."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo


def integer_flag(text: str) -> int:
    """A whole number; 1e5 is one, 1.5 is not.

    Raises:
        ValueError: If it is not whole, or larger than any count.
    """
    from revbis.io import schema  # here, so that help needs no NumPy

    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"must be a whole number, got {text!r}") from None
    if value.is_finite() and value.copy_abs() > schema.MOST:
        raise ValueError(f"must be at most {schema.MOST:,}, got {text}")
    if not value.is_finite() or value != value.to_integral_value():
        raise ValueError(f"must be a whole number, got {text!r}")
    return int(value)


def finite_number(text: str) -> float:
    """A real number other than NaN and infinity.

    Raises:
        ValueError: If it is not.
    """
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"must be a number, got {text!r}") from None
    if value - value != 0:  # only of NaN and infinity
        raise ValueError(f"must be a finite number, got {text!r}")
    return value


def local_path(text: str) -> Path:
    """A path on this machine.

    Raises:
        ValueError: If it is a URL, which would become a folder of that name.
    """
    from revbis.runs.folder import is_url

    if is_url(text):
        raise ValueError(f"must be a path, got {text!r}; only revbis sweep --on ray takes a URL")
    return Path(text)


def flag_rules() -> ConstructorRegistry:
    """The rules for numbers and paths; active in tyro while the registry is entered."""
    registry = ConstructorRegistry()
    readers: dict[Any, tuple[str, Callable[[str], Any]]] = {
        int: ("INT", integer_flag),
        float: ("FLOAT", finite_number),
        int | None: ("None|INT", _or_none(integer_flag)),
        float | None: ("None|FLOAT", _or_none(finite_number)),
        Path: ("PATH", local_path),
        Path | None: ("{None}|PATH", _or_none(local_path)),
    }

    @registry.primitive_rule
    def single(type_info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        for kind, (metavar, read) in readers.items():
            if type_info.type == kind:
                return _spec(kind, metavar, read)
        return None

    @registry.primitive_rule
    def paths(type_info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        if type_info.type != tuple[Path, ...]:
            return None
        return PrimitiveConstructorSpec(  # tyro's own would hide why one of them is refused
            nargs="*",
            metavar="[PATH [PATH ...]]",
            instance_from_str=lambda words: tuple(map(local_path, words)),
            is_instance=lambda value: isinstance(value, tuple),
            str_from_instance=lambda value: [str(path) for path in value],
        )

    return registry


def _spec(kind: object, metavar: str, read: Callable[[str], Any]) -> PrimitiveConstructorSpec[Any]:
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: read(words[0]),
        is_instance=lambda value: isinstance(value, kind | int) and not isinstance(value, bool),
        str_from_instance=lambda value: [str(value)],
    )


def _or_none(read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: None if text == "None" else read(text)
