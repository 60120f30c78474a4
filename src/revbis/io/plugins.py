"""What is loaded by name: optional packages, and functions of the user's own."""

from __future__ import annotations

import math
import site
import sys
import traceback
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from packaging.requirements import Requirement

PYTHONS = ("3.11", "3.12", "3.13", "3.14")  # that revbis supports
# What pip installs on a Python only without what it requires: labmaze has no wheel for 3.13, and no
# task of dm_control's that is here needs it.
_ALONE = {"3.13": "dm_control"}
# Markers are parsed with `ast`, which in Python 3.11 can fail in two threads at once.
_PARSING = Lock()


def requirements() -> list[Requirement]:
    """Every requirement of revbis and its extras, from its own metadata.

    Raises:
        PackageNotFoundError: If revbis is imported without being installed.
    """
    from packaging.requirements import Requirement  # slow, and seldom of use

    with _PARSING:
        return [Requirement(line) for line in requires("revbis") or ()]


def requirements_of(extra: str) -> list[Requirement]:
    """What one of the package's extras requires, without markers, as pip is given it.

    Raises:
        PackageNotFoundError: If revbis is imported without being installed.
        ValueError: If there is no such extra.
    """
    added = []
    for requirement in requirements():
        marker, requirement.marker = requirement.marker, None
        if marker and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""}):
            added.append(requirement)
    if not added:
        raise ValueError(f"revbis has no extra {extra!r}")
    return added


def unavailable(extra: str) -> dict[str, str]:
    """What an extra lacks on this Python: packages by name, and the Pythons that have them.

    Empty if revbis is imported without being installed.
    """
    lacking = {}
    try:
        listed = requirements()
    except PackageNotFoundError:
        return {}
    for requirement in listed:
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": extra}):
            continue
        fitting = [
            version
            for version in PYTHONS
            if marker.evaluate({"extra": extra, "python_version": version})
            and not marker.evaluate({"extra": "", "python_version": version})
        ]
        if fitting:
            lacking[requirement.name.replace("-", "_")] = " or ".join(fitting)
    return lacking


def remedy(package: str, pythons: str) -> str:
    """What to do about a package that an extra lacks on this Python, and has on others."""
    if is_alone(package):
        return f"pip install --no-deps {package} (with -c constraints.txt, if mujoco was)"
    return f"use Python {pythons}"


def is_alone(package: str) -> bool:
    """Whether pip installs a package on this Python only without what it requires."""
    return _ALONE.get(_here()) == package


def _here() -> str:
    """The version of this Python, such as 3.11."""
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def install_line(extra: str) -> str:
    """The `pip install` line for one of the package's extras."""
    try:
        added = requirements_of(extra)
    except (PackageNotFoundError, ValueError):  # run from a source that is not what was installed
        return f'pip install "revbis[{extra}]"'
    return "pip install " + " ".join(f'"{requirement}"' for requirement in added)


def require(module: str, extra: str, subject: str) -> ModuleType:
    """Imports a module.

    Args:
        module: Its name.
        extra: The extra of revbis that installs it.
        subject: What needs it, as the subject of a sentence.

    Raises:
        ModuleNotFoundError: With the line that installs it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:  # the module, or one that it imports itself
        text = missing_text(error.name or module, extra, subject)
        raise ModuleNotFoundError(text, name=error.name) from None


def is_installed(module: str) -> bool:
    """Whether a top-level module can be imported, without importing it.

    A folder of that name in the working folder, such as the one wandb writes to, does not count.
    """
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


def missing_text(module: str, extra: str, subject: str) -> str:
    """What `require` says of a module that is not installed; `extra` is empty if none has it."""
    for package, pythons in unavailable(extra).items():
        if not is_installed(package):
            return (
                f"{subject} needs {package}, which its extra does not install on Python {_here()} "
                f"(there is no wheel of it, or of what it requires); "
                f"{'run: ' if is_alone(package) else ''}{remedy(package, pythons)}"
            )
    text = f"{subject} needs {module}, which is not installed"
    if not extra:
        return f'{text}; run: pip install "{module}"'
    return f"{text}: it comes with the extra revbis[{extra}]; run: {install_line(extra)}"


_LIBRARIES = (str(Path(__file__).parents[1]), *map(str, site.getsitepackages()), "<")
FORM = "package.module:factory"


def search_working_folder() -> None:
    """Lets modules of the working folder be imported, as `python -m` does."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


def is_factory_name(name: object) -> bool:
    """Whether it has the form of `package.module:factory`; nothing is imported."""
    if not isinstance(name, str):
        return False
    module, colon, factory = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), factory))


def load_factory(name: str) -> Callable[..., Any]:
    """The function that `package.module:factory` names; the working folder is searched too.

    Raises:
        ValueError: If there is no such module or function, or the module cannot be imported.
        ModuleNotFoundError: If the module itself needs one that is not installed.
    """
    if not is_factory_name(name):
        raise ValueError(f"a factory must be named as {FORM}, got {name!r:.80}")
    module_name, _, factory_name = name.partition(":")
    if not module_name.startswith("revbis."):
        search_working_folder()
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{module_name}.".startswith(f"{missing.name}."):
            raise
        raise ValueError(
            f"{name}: there is no module {missing.name!r} on sys.path or in {Path.cwd()}; "
            f"the form is {FORM}"
        ) from None
    except Exception as error:
        raise ValueError(f"{name}: importing {module_name!r} raised {described(error)}") from error
    factory: object = getattr(module, factory_name, None)
    if not callable(factory):
        raise ValueError(f"{name}: module {module_name!r} has no function {factory_name!r}")
    return factory


def described(error: Exception) -> str:
    """The error in one line: its type, the last line of the user's that led to it, its message."""
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    place = f" at {Path(users[-1].filename).name}:{users[-1].lineno}" if users else ""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}{place}" + (f": {message:.300}" if message else "")


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
        return try_call("the factory", factory, *arguments.values(), **options)
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


def try_call(
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


def check_returned_tensor(
    name: str, tensor: object, shape: tuple[int | None, ...], batch: int
) -> None:
    """A finite tensor of this shape; None stands for any size.

    Raises:
        ValueError: If it is something else; with the shape for a batch of this size.
    """
    import torch

    if not isinstance(tensor, torch.Tensor):
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
