"""A grid of runs: tasks × methods × seeds × overrides, from a file or from flags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from revbis import checks
from revbis.agents.settings import METHODS
from revbis.config import Config
from revbis.presets import PRESETS, preset_config

# What the grid itself decides, or the sweep.
_GIVEN = ("task", "method", "seed", "preset", "out", "threads")


@dataclass(frozen=True)
class Grid:
    """What to run.

    Attributes:
        tasks: Task names.
        methods: Method names.
        seeds: Seeds.
        preset: Where settings come from.
        settings: Settings that differ from the preset's, in every run.
        overrides: Further settings by name; with them, every run is made once for each name, in
            a folder of that name.

    Raises:
        ValueError: For anything that cannot be run, before anything is.
    """

    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...] = (1, 2, 3)
    preset: str = "cpu"
    settings: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checks.choice(self.preset, PRESETS, "preset")
        for name in ("tasks", "methods", "seeds"):
            values = getattr(self, name)
            if not values:
                raise ValueError(f"{name} is empty: a grid needs at least one")
            double = sorted({str(value) for value in values if values.count(value) > 1})
            if double:
                raise ValueError(f"{name} has {', '.join(double)} more than once")
        for method in self.methods:
            checks.choice(method, METHODS, "methods")
        _check_settings("settings", self.settings)
        for name, settings in self.overrides.items():
            if not name or "/" in name or name.startswith("."):
                raise ValueError(f"overrides: {name!r} cannot be the name of a folder")
            _check_settings(f"overrides, {name}", settings)

    def configs(self, out: Path) -> list[Config]:
        """Every run, seed by seed, so that a sweep cut short has whole rows."""
        overrides = self.overrides or {"": {}}
        return [
            self._config(out / name, seed, task, method, settings)
            for seed, (name, settings), task, method in product(
                self.seeds, overrides.items(), self.tasks, self.methods
            )
        ]

    def _config(
        self, out: Path, seed: int, task: str, method: str, override: Mapping[str, Any]
    ) -> Config:
        values = {**self.settings, **override}
        if "strides" in values:
            values["strides"] = tuple(values["strides"])
        start = preset_config(self.preset, task)
        try:
            return replace(start, seed=seed, method=method, out=out, **values)
        except TypeError as problem:
            raise ValueError(f"settings of {task}, {method}: {problem}") from None


def read_grid(name: str) -> Grid:
    """The grid in a YAML file, or one that ships with the package by its name.

    Raises:
        ValueError: If it is neither, or not a grid.
    """
    import yaml

    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.exists():
        try:
            text = path.read_text()
        except OSError as problem:
            raise ValueError(f"{path} cannot be read: {problem.strerror}") from None
    else:
        checks.choice(name, shipped_grids(), "the grid")
        text = (files("revbis.sweep") / "grids" / f"{name}.yaml").read_text()
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as problem:
        raise ValueError(f"{name} is not YAML: {' '.join(str(problem).split())}") from None
    return grid_from(values, name)


def grid_from(values: Any, name: str = "the grid") -> Grid:
    """The grid that a mapping describes; `name` is for messages.

    Raises:
        ValueError: If it is not a grid.
    """
    known = [each.name for each in fields(Grid)]
    if not isinstance(values, dict):
        raise ValueError(f"{name} must be a mapping with {', '.join(known)}")
    unknown = sorted(str(key) for key in set(values) - set(known))
    if unknown:
        raise ValueError(f"{name}: unknown {', '.join(unknown)}; there is: {', '.join(known)}")
    for needed in ("tasks", "methods"):
        if needed not in values:
            raise ValueError(f"{name} has no {needed}")
    values = {key: value for key, value in values.items() if value is not None}
    for key in ("tasks", "methods", "seeds"):
        if key in values:
            values[key] = _listed(values[key], f"{name}: {key}")
    for key in ("settings", "overrides"):
        if not isinstance(values.get(key, {}), dict):
            raise ValueError(f"{name}: {key} must be a mapping")
    for seed in values.get("seeds", ()):
        checks.whole(seed, f"{name}: seeds", 0)
    return Grid(**values)


def shipped_grids() -> list[str]:
    """Names of the grids that come with the package."""
    folder = files("revbis.sweep") / "grids"
    return sorted(item.name.removesuffix(".yaml") for item in folder.iterdir())


def parse_settings(words: Iterable[str]) -> dict[str, Any]:
    """Settings from words like `frames=60000`; values are read as YAML.

    Raises:
        ValueError: For a word without `=`, or an unknown setting.
    """
    import yaml

    settings = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"--set wants NAME=VALUE, got {word!r}")
        settings[name.strip().replace("-", "_")] = _plain(yaml.safe_load(value))
    _check_settings("--set", settings)
    return settings


def _check_settings(where: str, settings: Any) -> None:
    if not isinstance(settings, Mapping):
        raise ValueError(f"{where} must be a mapping of settings")
    known = {each.name for each in fields(Config)} - set(_GIVEN)
    unknown = sorted(str(name) for name in set(settings) - known)
    if unknown:
        raise ValueError(
            f"{where}: unknown {', '.join(unknown)}; revbis train --help lists the settings "
            f"({', '.join(_GIVEN)} are given elsewhere)"
        )


def _listed(value: Any, name: str) -> tuple[Any, ...]:
    """A list of plain values; a single one is a list of itself."""
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(each, (str, int)) for each in values):
        raise ValueError(f"{name} must be a list of names or numbers, got {value}")
    return tuple(values)


def _plain(value: Any) -> Any:
    """YAML takes 1e-4 for a word."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value
