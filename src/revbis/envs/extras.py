"""Optional packages: what is missing, and the line that installs it."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from types import ModuleType


def install_line(extra: str) -> str:
    """The `pip install` line for one of the package's extras, from the package's own metadata."""
    marker = re.compile(rf"""extra\s*==\s*['"]{re.escape(extra)}['"]""")
    try:
        lines = requires("revbis") or ()
    except PackageNotFoundError:  # run from its source, as with PYTHONPATH
        return f'pip install "revbis[{extra}]"'
    wanted = [line.split(";")[0].strip() for line in lines if marker.search(line)]
    if not wanted:
        raise ValueError(f"revbis has no extra {extra!r}")
    return "pip install " + " ".join(f'"{requirement}"' for requirement in wanted)


def require(module: str, extra: str, why: str) -> ModuleType:
    """The module, or an error that says what to type.

    Args:
        module: Name to import.
        extra: The extra of this package that brings it.
        why: What needs it, as the subject of a sentence.

    Raises:
        ModuleNotFoundError: With the line that installs it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:  # the module, or something that it needs itself
        text = missing_text(error.name or module, extra, why)
        raise ModuleNotFoundError(text, name=error.name) from None


def require_gymnasium(task: str) -> None:
    """Refuses a task that cannot be made without Gymnasium, with the line for its own suite.

    Raises:
        ModuleNotFoundError: With the line that installs it.
    """
    suite = task.partition(":")[0]
    if suite in ("dmc", "metaworld"):
        require("gymnasium", suite, f"a {suite}: task")
    else:
        require("gymnasium", "gym", "an environment")


def is_installed(module: str) -> bool:
    """Whether a top-level module can be imported, without importing it.

    A folder of that name in the working folder, such as the one wandb writes to, does not count.
    """
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


def missing_text(module: str, extra: str, why: str) -> str:
    """The message for a module that is not installed; see `require`."""
    return (
        f"{why} needs {module}, which is not installed: it comes with the extra revbis[{extra}]; "
        f"type: {install_line(extra)}"
    )
