"""Functions that users name as `package.module:factory`."""

from __future__ import annotations

import site
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

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
