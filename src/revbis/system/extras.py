"""Optional packages: what is missing, and the line that installs it."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from packaging.requirements import Requirement

# Markers are parsed with `ast`, which in Python 3.11 can fail in two threads at once.
_PARSING = Lock()


def requirements() -> list[Requirement]:
    """Every requirement of revbis and its extras, from its own metadata.

    Raises:
        PackageNotFoundError: If revbis is imported without being installed.
    """
    from packaging.requirements import (
        Requirement,
    )  # slow, and of use only when something is missing

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
    """The message for a module that is not installed.

    Args:
        module: Its name.
        extra: The extra of revbis that installs it; empty if none does.
        subject: What needs it, as the subject of a sentence.
    """
    text = f"{subject} needs {module}, which is not installed"
    if not extra:
        return f'{text}; run: pip install "{module}"'
    return f"{text}: it comes with the extra revbis[{extra}]; run: {install_line(extra)}"
