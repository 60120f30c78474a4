"""A grid of runs: tasks × methods × seeds × overrides, from a file or from flags."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, Literal

import yaml

from revbis.agents.registry import resolve
from revbis.io import schema
from revbis.io.schema import Seed, Text
from revbis.runs.config import RUN_SETTINGS, Config, setting_names
from revbis.runs.presets import preset_config

_MOST_RUNS = 100_000
# What the grid itself decides, or the sweep.
_GIVEN = ("task", "method", "seed", "name", "preset", "out", "threads")


@dataclass(frozen=True)
class Grid:
    """Which runs to train.

    Attributes:
        tasks: Task names.
        methods: Method names.
        seeds: Seeds.
        preset: Where settings come from.
        settings: Settings that differ from the preset's, in every run.
        overrides: Further settings by name; with them, every run is trained once for each name,
            in a folder of that name. A method that has none of a name's settings is trained once
            without them, beside these folders.

    Raises:
        ValueError: For anything that cannot be trained, before anything starts.
    """

    tasks: tuple[Text, ...]
    methods: tuple[Text, ...]
    seeds: tuple[Seed, ...] = (1, 2, 3)
    preset: Literal["paper", "cpu"] = "cpu"
    settings: dict[str, Any] = field(default_factory=dict)
    overrides: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        schema.validate_fields(self)
        for name in ("tasks", "methods", "seeds"):
            values = getattr(self, name)
            if not values:
                raise ValueError(f"{name} is empty: a grid needs at least one")
            double = sorted(str(value) for value, count in Counter(values).items() if count > 1)
            if double:
                raise ValueError(f"{name} has {', '.join(double)} more than once")
        for method in self.methods:
            resolve(method)
        _check_settings("settings", self.settings)
        for name, settings in self.overrides.items():
            if not re.fullmatch(schema.FOLDER_NAME, name):
                raise ValueError(f"overrides: {name!r:.80} cannot be the name of a folder")
            _check_settings(f"overrides, {name}", settings)
        runs = len(self.tasks) * len(self.methods) * len(self.seeds) * max(len(self.overrides), 1)
        if runs > _MOST_RUNS:
            raise ValueError(f"the grid has {runs:,} runs; at most {_MOST_RUNS:,} are allowed")

    def configs(self, out: Path, threads: int | None = None) -> list[Config]:
        """Every run, seed by seed, so that an unfinished sweep is whole for the first seeds.

        Args:
            out: The sweep's folder.
            threads: Of each run; the preset's number if None.
        """
        overrides = self.overrides or {"": {}}
        folders = {method: _folders(overrides, method) for method in self.methods}
        given = {} if threads is None else {"threads": threads}
        first = [
            self._config(out / folders[method][name], task, method, {**settings, **given})
            for (name, settings), task, method in product(
                overrides.items(), self.tasks, self.methods
            )
            if name in folders[method]
        ]
        return [config.with_seed(seed) for seed in self.seeds for config in first]

    def _config(self, out: Path, task: str, method: str, override: Mapping[str, Any]) -> Config:
        values = {**self.settings, **override}
        observation = "state" if values.get("observation") == "state" else "pixels"
        start = preset_config(self.preset, task, method, observation)
        try:
            return start.with_settings(out=out, **_of_method(values, method))
        except ValueError as problem:
            raise ValueError(f"settings of {task}, {method}: {problem}") from None


def _of_method(settings: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Those of the settings that the method has."""
    own = RUN_SETTINGS | resolve(method).flags
    return {name: value for name, value in settings.items() if name in own}


def _folders(overrides: Mapping[str, Mapping[str, Any]], method: str) -> dict[str, str]:
    """The folder for a method's runs with each override; without those that are the same for it.

    With an override that has none of its settings, a method is as it is without overrides: it is in
    the folder of an override that is empty, else in none.
    """
    plain = next((name for name, settings in overrides.items() if not settings), "")
    folders: dict[str, str] = {}
    seen: list[dict[str, Any]] = []
    for name, settings in overrides.items():
        own = _of_method(settings, method)
        if own not in seen:
            seen.append(own)
            folders[name] = name if own else plain
    return folders


def read_grid(name: str) -> Grid:
    """The grid in a YAML file, or one that ships with the package by its name.

    Raises:
        ValueError: If it is neither, or not a grid.
    """
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.exists():
        try:
            text = path.read_text()
        except OSError as problem:
            raise ValueError(f"{path} cannot be read: {problem.strerror}") from None
        except UnicodeDecodeError:
            raise ValueError(f"{path} is not text") from None
    else:
        schema.choice(name, shipped_grids(), "the grid")
        text = (files("revbis.sweep") / "grids" / f"{name}.yaml").read_text()
    return grid_from(_load_yaml(text, name), name)


def choose_grid(
    name: str | None,
    *,
    tasks: Sequence[str] = (),
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (),
    preset: str | None = None,
    settings: Sequence[str] = (),
    overrides: Sequence[str] = (),
) -> Grid:
    """The grid of that name, with the values of flags in place of its own; None for flags alone.

    Args:
        name: A YAML file, or a grid that ships with the package.
        tasks: In place of its own, unless empty.
        methods: Likewise.
        seeds: Likewise.
        preset: Likewise, unless None.
        settings: Further settings for every run, as NAME=VALUE.
        overrides: Names of those of its overrides that are wanted; empty for all.

    Raises:
        ValueError: If there is no such grid, or it cannot be trained.
    """
    values = {"tasks": tasks, "methods": methods, "seeds": seeds, "preset": preset}
    flags = {key: value for key, value in values.items() if value}
    extra = parse_settings(settings)
    if name is None and overrides:
        raise ValueError("--overrides chooses among those of a grid: give one that has them")
    if name is None:
        if not tasks or not methods:
            raise ValueError(
                "give a grid (a YAML file, or one of "
                f"{', '.join(shipped_grids())}) or --tasks and --methods"
            )
        return grid_from(flags | {"settings": extra}, "the flags")
    grid = read_grid(name)
    if overrides:
        grid = replace(grid, overrides=_chosen(grid.overrides, overrides, name))
    grid = replace(grid, **flags, settings={**grid.settings, **extra})  # type: ignore[arg-type]
    _check_used("--set", extra, grid.methods)  # the file's own may be for methods that are left out
    return grid


def _chosen(
    overrides: Mapping[str, dict[str, Any]], names: Sequence[str], grid: str
) -> dict[str, dict[str, Any]]:
    if not overrides:
        raise ValueError(f"{grid} has no overrides to choose from")
    for name in names:
        schema.choice(name, overrides, "--overrides")
    return {name: settings for name, settings in overrides.items() if name in names}


def grid_from(values: object, name: str = "the grid") -> Grid:
    """The grid that a mapping describes; `name` is for messages.

    Raises:
        ValueError: If it is not a grid.
    """
    known = [each.name for each in fields(Grid)]
    if not isinstance(values, dict):
        raise ValueError(f"{name} must be a mapping with {', '.join(known)}")
    schema.check_keys(values, known, name)
    for needed in ("tasks", "methods"):
        if needed not in values:
            raise ValueError(f"{name} has no {needed}")
        if values[needed] is None:
            raise ValueError(f"{name}: {needed} is empty: a grid needs at least one")
    values = {key: value for key, value in values.items() if value is not None}
    for key in ("tasks", "methods", "seeds"):  # a single one is a list of itself
        if key in values and not isinstance(values[key], (list, tuple)):
            values[key] = [values[key]]
    overrides = values.get("overrides")
    if isinstance(overrides, dict):  # YAML takes a folder named 0.1 for a number
        values["overrides"] = {
            str(key): {} if each is None else each for key, each in overrides.items()
        }
    try:
        grid = Grid(**values)
        _check_used("settings", grid.settings, grid.methods)
        for folder, settings in grid.overrides.items():
            _check_used(f"overrides, {folder}", settings, grid.methods)
        return grid
    except ValueError as problem:
        raise ValueError(f"{name}: {problem}") from None


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Refuses a key that a mapping has twice, of which YAML would keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        double = [key for key, count in Counter(keys).items() if count > 1]
        if double:
            line = node.start_mark.line + 1
            raise yaml.YAMLError(f"{double[0]} is there twice in the mapping at line {line}")
        return super().construct_mapping(node, deep)


def _load_yaml(text: str, name: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply") from None
    except (yaml.YAMLError, ValueError, TypeError, AttributeError) as problem:
        # the last three are PyYAML's own for tags such as !!timestamp with a value that is none
        raise ValueError(f"{name} is not YAML: {' '.join(str(problem).split())}") from None


def shipped_grids() -> list[str]:
    """Names of the grids that come with the package."""
    folder = files("revbis.sweep") / "grids"
    return sorted(item.name.removesuffix(".yaml") for item in folder.iterdir())


def parse_settings(words: Iterable[str]) -> dict[str, Any]:
    """Settings from words like `frames=60000`; values are read as YAML.

    Raises:
        ValueError: For a word without `=`, or an unknown setting.
    """
    settings = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"--set wants NAME=VALUE, got {word!r:.80}")
        settings[name.strip().replace("-", "_")] = _load_yaml(value, f"--set {name}")
    _check_settings("--set", settings)
    return settings


def _check_settings(where: str, settings: object) -> None:
    try:
        schema.check_keys(settings, setting_names() - set(_GIVEN), where)
    except ValueError as problem:
        raise ValueError(
            f"{problem}; revbis train --help lists the settings ({', '.join(_GIVEN)} are given "
            "elsewhere)"
        ) from None


def _check_used(where: str, settings: Iterable[str], methods: Sequence[str]) -> None:
    """Refuses settings that no method has; those that only some have are for these."""
    used = RUN_SETTINGS.union(*(resolve(method).flags for method in methods))
    unused = [name for name in settings if name not in used]
    if unused:
        raise ValueError(
            f"{where}: no method of the grid has {', '.join(unused)}: leave it out, or add a "
            "method that has it"
        )
