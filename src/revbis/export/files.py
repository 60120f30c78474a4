"""The files of an export: their names, and how they are written and read.

    weights.safetensors   the tensors that acting and embedding read, and no others
    agent.json            the settings, the shapes, and the checksum of the weights
    README.md             the model card; it is for people, and never read

The weights are plain numbers with names. Whatever is read is checked, and none of it is executed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from revbis import schema
from revbis.schema import ExportFile
from revbis.system.files import digest, write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

WEIGHTS, SETTINGS, CARD = "weights.safetensors", "agent.json", "README.md"
FORMAT = "revbis export 1"
_LARGEST_SETTINGS = 1 << 20  # bytes


def write_settings(folder: Path, content: ExportFile) -> None:
    """Writes agent.json."""
    write_whole(folder / SETTINGS, json.dumps(content, indent=2, allow_nan=False).encode())


def read_settings(folder: Path) -> ExportFile:
    """Reads agent.json.

    Raises:
        ValueError: If the folder is not an export of this version.
    """
    path = folder / SETTINGS
    if not path.is_file():
        raise ValueError(
            f"{folder} is not an export: it has no {SETTINGS}; revbis export RUN makes one"
        )
    if path.stat().st_size > _LARGEST_SETTINGS:
        raise ValueError(f"{path} is larger than any {SETTINGS}; export the run again")
    try:
        values: dict[str, object] = schema.parse_json(path.read_bytes(), dict[str, object], "it")
        if values.get("format") != FORMAT:
            raise ValueError(f"its format must be {FORMAT!r}, got {values.get('format')!r:.80}")
        return schema.convert(values, ExportFile, "it")
    except ValueError as problem:
        raise ValueError(f"{path} is not from revbis export: {problem}") from None


def write_weights(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes the weights.

    Raises:
        ValueError: If one of them is not finite.
    """
    from safetensors.torch import save

    for name, tensor in tensors.items():
        _check_finite(name, tensor, "the run's agent")
    # Copies, because some are views of one memory, which the format does not have.
    write_whole(folder / WEIGHTS, save({name: each.clone() for name, each in tensors.items()}))


def read_weights(folder: Path, content: ExportFile, into: Mapping[str, Tensor]) -> None:
    """Copies the weights into tensors that have the same names, shapes and types.

    Nothing larger than they are is read.

    Raises:
        ValueError: If the file is missing, truncated or changed, or does not fit.
    """
    import torch
    from safetensors import SafetensorError, safe_open

    path = folder / WEIGHTS
    expected = {name: (list(each.shape), _type_name(each)) for name, each in into.items()}
    if widths(folder, content) != {name: shape for name, (shape, _) in expected.items()}:
        raise ValueError(_difference(path, widths(folder, content), expected))
    if digest(path) != content["weights"]["digest"]:
        raise ValueError(f"{path} has changed since it was exported; export the run again")
    try:
        with safe_open(path, framework="pt") as file, torch.no_grad():
            for name, tensor in into.items():
                value = file.get_tensor(name)
                if value.dtype != tensor.dtype:
                    raise ValueError(
                        f"{path}: {name} must be {_type_name(tensor)}, got {_type_name(value)}"
                    )
                _check_finite(name, value, str(path))
                tensor.copy_(value)
    except (SafetensorError, OSError) as problem:
        raise ValueError(f"{path} cannot be read: {problem}") from None


def widths(folder: Path, content: ExportFile) -> dict[str, list[int]]:
    """The shapes of the weights by name, from the head of their file alone.

    Raises:
        ValueError: If the file is missing or truncated, or no file of tensors.
    """
    from safetensors import SafetensorError, safe_open

    path = folder / WEIGHTS
    if not path.is_file():
        raise ValueError(f"{folder} is incomplete: it has no {WEIGHTS}; export the run again")
    size, wanted = path.stat().st_size, content["weights"]["bytes"]
    if size != wanted:
        raise ValueError(
            f"{path} must have {wanted:,} bytes, got {size:,}: it is truncated or of another "
            "export; export the run again"
        )
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_slice(name).get_shape() for name in sorted(file.keys())}
    except (SafetensorError, OSError) as problem:
        raise ValueError(f"{path} cannot be read: {problem}") from None


def _difference(
    path: Path, got: Mapping[str, list[int]], expected: Mapping[str, tuple[list[int], str]]
) -> str:
    """Why the weights do not fit the settings: the first difference."""
    if missing := sorted(expected.keys() - got.keys()):
        return f"{path} does not fit {SETTINGS}: it has no {missing[0]}"
    if foreign := sorted(got.keys() - expected.keys()):
        return f"{path} does not fit {SETTINGS}: {foreign[0]!r:.80} is not of this agent"
    name = next(name for name in sorted(got) if got[name] != expected[name][0])
    return (
        f"{path} does not fit {SETTINGS}: {name} must be {expected[name][0]}, "
        f"got {schema.shown(got[name])}"
    )


def _check_finite(name: str, tensor: Tensor, owner: str) -> None:
    if tensor.is_floating_point() and not tensor.isfinite().all():
        raise ValueError(f"{owner}: {name} must be finite, but has NaN or infinity in it")


def _type_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
