"""Tries what a user's own factory returns, and says in one line what does not work."""

from __future__ import annotations

import math
from inspect import signature
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from revbis.system.factories import described, load_factory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def call_factory(name: str, arguments: Mapping[str, object], options: Mapping[str, Any]) -> Any:
    """What `package.module:factory` returns.

    Args:
        name: The factory.
        arguments: Positional arguments, under the names that messages call them.
        options: Keyword arguments.

    Raises:
        ValueError: If the factory is missing, is called in another way, or raises.
        ModuleNotFoundError: If the factory's module needs one that is not installed.
    """
    factory = load_factory(name)
    words = [*arguments, *(f"{key}=..." for key in options)]
    try:
        check_call("the factory", factory, words, *arguments.values(), **options)
        return attempt("the factory", factory, *arguments.values(), **options)
    except ValueError as problem:
        raise ValueError(f"{name}: {problem}") from problem.__cause__


def check_call(
    name: str,
    function: Callable[..., Any],
    words: list[str],
    /,
    *arguments: object,
    **options: object,
) -> None:
    """Refuses a function that cannot be called with these arguments; it is not called.

    Raises:
        ValueError: With the arguments, as `words` calls them.
    """
    try:
        parameters = signature(function)
    except (TypeError, ValueError):  # a callable without a signature
        return
    try:
        parameters.bind(*arguments, **options)
    except TypeError as problem:
        raise ValueError(f"{name} is called with ({', '.join(words)}): {problem}") from None


def attempt(
    name: str, function: Callable[..., Any], /, *arguments: object, **options: object
) -> Any:
    """The function's result; whatever it raises becomes a ValueError that names it."""
    try:
        return function(*arguments, **options)
    except Exception as error:
        raise ValueError(f"{name} raised {described(error)}") from error


def check_status(status: object) -> None:
    """A dict of finite numbers.

    Raises:
        ValueError: If it is something else.
    """
    if not isinstance(status, dict):
        raise ValueError(f"status() must return a dict of numbers, got {kind(status)}")
    for name, value in status.items():
        if not isinstance(value, float | int) or not math.isfinite(value):
            raise ValueError(f"status()[{name!r}] must be a finite number, got {value!r:.80}")


def check_tensor(name: str, tensor: object, shape: tuple[int | None, ...], batch: int) -> None:
    """A finite tensor of this shape; None stands for any size.

    Raises:
        ValueError: If it is something else; with the shape for a batch of this size.
    """
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name} must be a tensor, got {kind(tensor)}")
    sizes = [size if size is not None else "D" for size in shape]
    if tensor.ndim != len(shape) or any(
        size not in (None, real) for size, real in zip(shape, tensor.shape, strict=True)
    ):
        size = "a scalar" if not shape else str(sizes).replace("'", "")
        raise ValueError(f"{name} must be {size} for a batch of {batch}, got {list(tensor.shape)}")
    bad = int((~torch.isfinite(tensor)).sum())
    if bad:
        raise ValueError(f"{name} has {bad} non-finite values of {tensor.numel()}")


def kind(value: object) -> str:
    """What something is, in a word."""
    return "None" if value is None else type(value).__name__
