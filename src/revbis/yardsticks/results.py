"""Results of cells as small files, each with the key of everything that it depends on.

The key's checksum is in the file's name, so a result is reused by the same command alone and never
mixed with others.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from revbis.system.factories import is_factory_name, search_working_folder
from revbis.system.files import digest_of_bytes, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable

Record = dict[str, Any]


def checksum(key: Record) -> str:
    """A short checksum of a key."""
    return digest_of_bytes(json.dumps(key, sort_keys=True).encode())[:12]


def write_result(path: Path, key: Record, result: Record) -> None:
    """Writes a result.

    Raises:
        OSError: If it cannot be written.
    """
    content = {"key": key, "result": result}
    write_whole(path, (json.dumps(content, indent=1) + "\n").encode())


def read_result(path: Path, key: Record) -> Record | None:
    """The result with this key; None if there is none, or it cannot be read."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    same = isinstance(content, dict) and content.get("key") == json.loads(json.dumps(key))
    return content.get("result") if same else None


def code_checksum(paths: Iterable[Path]) -> str:
    """A checksum of the code in some files."""
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def own_code(method: str) -> str | None:
    """A checksum of the file that a user's factory is in; what it imports is not part of it.

    None for objectives that come with the package.
    """
    if not is_factory_name(method):
        return None
    search_working_folder()
    file = getattr(import_module(method.partition(":")[0]), "__file__", None)
    return None if file is None else digest_of_bytes(Path(file).read_bytes())
