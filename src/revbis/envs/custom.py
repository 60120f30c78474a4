"""The user's own environments: `package.module:factory`."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from revbis.envs.suite import Suite
from revbis.system.factories import load_factory, search_working_folder

if TYPE_CHECKING:
    from gymnasium import Env

    from revbis.envs.gymnasium import GymSimulation
    from revbis.envs.rendering import Quality


def make_custom(task: str) -> Env[Any, Any]:
    """The environment that `package.module:factory` returns; searches the working folder too.

    Raises:
        ValueError: If there is no such factory, or it does not return a `gymnasium.Env`.
    """
    from gymnasium import Env

    factory = load_factory(task)
    try:
        signature(factory).bind()
    except TypeError as problem:
        raise ValueError(f"{task}: the factory is called without arguments: {problem}") from None
    env = factory()
    if not isinstance(env, Env):
        raise ValueError(f"{task}: the factory must return a gymnasium.Env, got {type(env)}")
    return env


def _make(name: str, *, size: int, quality: Quality) -> GymSimulation:  # noqa: ARG001
    from revbis.envs.gymnasium import GymSimulation

    return GymSimulation(make_custom(name), name, size=size)


def _check(task: str) -> None:
    """Looks for the factory in the module's source; the module is not imported."""
    module, _, factory = task.partition(":")
    search_working_folder()
    try:
        spec = None if module.startswith(".") else find_spec(module)
    except ModuleNotFoundError as absent:
        if absent.name is None or not module.startswith(absent.name):
            raise  # a package around it needs another one
        raise _no_module(task, absent.name) from None
    except Exception:  # noqa: BLE001 (the packages around it are imported, and may raise anything)
        return
    if spec is None:
        raise _no_module(task, module)
    if spec.origin and spec.origin.endswith(".py"):
        names = _bound_names(Path(spec.origin))
        if names is not None and factory not in names:
            raise _no_factory(task)


def _no_module(task: str, module: str) -> ValueError:
    from revbis.envs.suites import forms  # which has a line for this suite

    return ValueError(
        f"{task}: there is no module {module!r} on sys.path or in {Path.cwd()}; a task is {forms()}"
    )


def _no_factory(task: str) -> ValueError:
    module, _, factory = task.partition(":")
    return ValueError(f"{task}: module {module!r} has no function {factory!r}")


def _bound_names(path: Path) -> set[str] | None:
    """Every name that a module's source may bind; None if the source does not show them."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    dynamic = {"*", "__getattr__", "globals"} & (names | _called_names(tree))
    return None if dynamic else names


def _called_names(tree: ast.AST) -> set[str]:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {function.id for function in calls if isinstance(function, ast.Name)}


SUITE = Suite(
    name="",
    form="package.module:factory",
    description="your own: a function that returns a gymnasium.Env",
    make=_make,
    example="package.module:factory",
    extra="gym",
    check=_check,
    gymnasium_env=make_custom,
)
