"""Environments that are registered with Gymnasium, by their ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from revbis.envs.suite import Suite

if TYPE_CHECKING:
    from gymnasium import Env

    from revbis.envs.gymnasium import GymSimulation
    from revbis.envs.rendering import Quality


def make_registered(name: str) -> Env[Any, Any]:
    """A registered environment by its id.

    Raises:
        ValueError: If Gymnasium cannot make it.
        ModuleNotFoundError: If it needs a package that is not installed.
    """
    from gymnasium import error, make

    try:
        return make(name, render_mode="rgb_array")
    except error.DependencyNotInstalled as missing:
        raise ModuleNotFoundError(f"gym:{name} needs another package: {missing}") from None
    except (error.Error, TypeError) as problem:
        raise ValueError(f"gym:{name} cannot be made: {problem}") from None


def _make(name: str, *, size: int, quality: Quality) -> GymSimulation:  # noqa: ARG001
    from revbis.envs.gymnasium import GymSimulation

    return GymSimulation(make_registered(name), f"gym:{name}", size=size)


def _check(name: str) -> None:
    if ":" in name:  # registered by a module that must be imported first
        return
    from gymnasium import error, spec

    try:
        spec(name)
    except error.Error as problem:
        raise ValueError(f"gym:{name} cannot be made: {problem}") from None


SUITE = Suite(
    name="gym",
    form="gym:ID",
    description="any Gymnasium environment with continuous actions",
    make=_make,
    example="gym:Pendulum-v1",
    extra="gym",
    check=_check,
    gymnasium_env=make_registered,
)
