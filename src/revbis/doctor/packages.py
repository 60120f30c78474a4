"""Simulators and optional packages: whether they work, in a tested version."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from revbis.doctor import process
from revbis.doctor.report import Finding, Health
from revbis.envs import suites
from revbis.system.extras import install_line, requirements, requirements_of

_OPTIONAL = {
    "ray": "for sweeps over many machines",
    "av": "for videos",
    "sheeprl": "for the agent dreamerv3",
}
# Each package outside the core, and the extra that installs it.
EXTRAS = suites.packages() | {"ray": "sweep", "av": "video", "sheeprl": "dreamer"}


def examine_package(name: str, environment: dict[str, str]) -> Finding:
    """The version of a package outside the core; a simulator is stepped too.

    Args:
        name: The package.
        environment: Variables to set when it is tried.
    """
    try:
        installed = version(name)
    except PackageNotFoundError:
        health: Health = "not needed" if name in _OPTIONAL else "missing"
        purpose = f"; {_OPTIONAL[name]} only" if name in _OPTIONAL else ""
        return Finding(name, health, f"not installed{purpose}", _install(name))
    if name in _OPTIONAL:
        return _conflict(name, installed) or versioned(name, installed)
    answer = process.ask(name, **environment)
    if "error" in answer:
        return Finding(name, "broken", f"{installed}: {answer['error']}", _install(name))
    return versioned(name, installed)


def _conflict(name: str, installed: str) -> Finding | None:
    """A warning if another package that its extra names is of a version that does not fit."""
    try:
        others = [each for each in requirements_of(EXTRAS[name]) if each.name != name]
    except (ValueError, PackageNotFoundError):  # an editable install older than its pyproject
        return None
    for other in others:
        now = version(other.name)
        if not accepts(other.specifier, now):
            detail = f"{installed}: needs {other}, but {other.name} {now} is installed"
            return Finding(name, "warning", detail, (f'pip install "{other}"',))
    return None


def examine_numpy() -> Finding:
    """The version of NumPy."""
    return versioned("numpy", version("numpy"))


def versioned(name: str, installed: str, detail: str = "") -> Finding:
    """The finding for a package that works: a warning if its version is not a tested one.

    Args:
        name: The package.
        installed: Its version.
        detail: What to report; the version if empty.
    """
    versions = tested(name)
    if accepts(versions, installed):
        return Finding(name, "ok", detail or installed)
    detail = f"{detail or installed}; revbis is tested with {name}{versions}"
    return Finding(name, "warning", detail, (f'pip install "{name}{versions}"',))


def tested(name: str) -> SpecifierSet:
    """The versions of a package that revbis requires; any if it requires none."""
    plain = canonicalize_name(name)
    try:
        matches = [each for each in requirements() if canonicalize_name(each.name) == plain]
    except PackageNotFoundError:
        matches = []
    return matches[-1].specifier if matches else SpecifierSet()


def accepts(versions: SpecifierSet, installed: str) -> bool:
    """Whether an installed version is among the versions; one that cannot be parsed is not."""
    try:
        return versions.contains(installed, prereleases=True)
    except InvalidVersion:
        return False


def _install(name: str) -> tuple[str, ...]:
    try:
        return (install_line(EXTRAS[name]),)
    except (ValueError, PackageNotFoundError):  # an editable install older than its pyproject
        return (f'pip install "{name}"',)
