"""Every suite: one line each, the names of their tasks, and whether a task can be made.

Imports no simulator.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from revbis.envs import dmc, gymnasium, metaworld
from revbis.io import schema
from revbis.io.plugins import require

if TYPE_CHECKING:
    from revbis.envs.suite import Suite

SUITES: dict[str, Suite] = {
    suite.name: suite for suite in (dmc.SUITE, metaworld.SUITE, gymnasium.REGISTERED)
}


def register(suite: Suite) -> None:
    """Adds a suite, whose tasks can then be used wherever a task can.

    Processes that revbis starts, as a sweep does, know it only if they import what registers it.

    Raises:
        ValueError: If its name is taken or could not stand before a colon, or its example is not
            one of its tasks.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", suite.name):
        raise ValueError(
            f"a suite's name must be lower-case letters and digits, got {suite.name!r}"
        )
    if suite.name in SUITES:
        raise ValueError(f"there is a suite {suite.name!r} already; choose another name")
    local = suite.local_name(suite.example)
    if local == suite.example or (suite.tasks and local not in suite.tasks):
        raise ValueError(
            f"the example of suite {suite.name!r} must be one of its tasks, such as "
            f"{suite.form}, got {suite.example!r}"
        )
    SUITES[suite.name] = suite


def suite_of(task: str) -> Suite:
    """The suite of a task by its name; the user's own factories are one too."""
    prefix, colon, _ = task.partition(":")
    return SUITES.get(prefix, gymnasium.CUSTOM) if colon else gymnasium.CUSTOM


def imported_by(task: str) -> str | None:
    """Whatever code outside the suites making a task imports; None if it imports none."""
    suite = suite_of(task)
    name = suite.local_name(task)
    module = suite is gymnasium.REGISTERED and ":" in name  # gym:MODULE:ID
    return name if module or suite is gymnasium.CUSTOM else None


def forms() -> str:
    """How a task may be written, for messages."""
    return f"{', '.join(suite.form for suite in SUITES.values())} or {gymnasium.CUSTOM.form}"


def listed() -> list[Suite]:
    """The suites whose tasks can be listed."""
    return [suite for suite in SUITES.values() if suite.tasks]


def packages() -> dict[str, str]:
    """Every package that a suite needs, and the extra that installs it; empty if none does."""
    extras: dict[str, str] = {}
    for suite in SUITES.values():
        for package in suite.packages:
            extras.setdefault(package, suite.extra)
    return extras | {suite.packages[-1]: suite.extra for suite in SUITES.values() if suite.extra}


def task_names(suite: str) -> list[str]:
    """The tasks of a suite such as "dmc", as `make_env` takes them, installed or not.

    Raises:
        ValueError: If there is no such suite, or its tasks cannot be listed.
    """
    return _full_names(_listed_suite(suite))


def missing(suite: str) -> str | None:
    """What a suite such as "dmc" needs that is not installed, with the line that installs it.

    Raises:
        ValueError: If there is no such suite, or its tasks cannot be listed.
    """
    return _listed_suite(suite).missing()


def check_task_name(task: str) -> None:
    """Refuses a name that no task can have.

    Raises:
        ValueError: For a task that its suite does not have, with the nearest names, or one that is
            not written as tasks are.
    """
    if not isinstance(task, str):
        raise ValueError(f"a task must be {forms()}, got {task!r}")
    prefix, _, name = task.partition(":")
    if not (prefix and name):
        full = {name: f"{suite.name}:{name}" for suite in listed() for name in suite.tasks}
        near = get_close_matches(task, list(full), n=1, cutoff=0.7)  # written without its suite
        hint = f"; did you mean {full[near[0]]}?" if near else ""
        raise ValueError(f"a task must be {forms()}, got {task!r}{hint}")
    suite = suite_of(task)
    if suite.tasks and name not in suite.tasks:
        near = get_close_matches(task, _full_names(suite), n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(
            f"there is no task {task!r} among the {len(suite.tasks)} of {suite.name}{hint}"
        )


def check_task(task: str) -> None:
    """Refuses a task that cannot be made here, without making it or importing its simulator.

    Raises:
        ValueError: For an unknown task.
        ModuleNotFoundError: If its simulator is not installed, with the line that installs it.
    """
    check_task_name(task)
    suite = suite_of(task)
    text = suite.missing()
    if text is not None:
        raise ModuleNotFoundError(text)
    if suite.check is not None:
        suite.check(suite.local_name(task))


def require_gymnasium(task: str) -> None:
    """Refuses a task if Gymnasium is not installed, with the line for its own suite.

    Raises:
        ModuleNotFoundError: With the line that installs it.
    """
    suite = suite_of(task)
    require("gymnasium", suite.extra, suite.subject)


def _listed_suite(name: str) -> Suite:
    return SUITES[schema.choice(name, [suite.name for suite in listed()], "suite")]


def _full_names(suite: Suite) -> list[str]:
    return [f"{suite.name}:{name}" for name in suite.tasks]
