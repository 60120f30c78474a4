"""Parses numbers on the command line, in the same way for every command."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

_MOST = 10**12  # beyond any present machine


def whole_number(text: str) -> int:
    """A whole number; 1e5 is one, 1.5 is not.

    Raises:
        ValueError: If it is not whole, or larger than 10^12.
    """
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"must be a whole number, got {text!r}") from None
    if value.is_finite() and value.copy_abs() > _MOST:
        raise ValueError(f"must be at most 10^12, got {text}")
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


def number_rules() -> ConstructorRegistry:
    """The rules for flags of type int and float; active in tyro while the registry is entered."""
    registry = ConstructorRegistry()
    readers: dict[Any, tuple[str, Callable[[str], Any]]] = {
        int: ("INT", whole_number),
        float: ("FLOAT", finite_number),
        int | None: ("None|INT", _or_none(whole_number)),
        float | None: ("None|FLOAT", _or_none(finite_number)),
    }

    @registry.primitive_rule
    def number(type_info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        for kind, (metavar, read) in readers.items():
            if type_info.type == kind:
                return _spec(kind, metavar, read)
        return None

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
