"""The names of tasks, and whether a task can be made, without importing a simulator."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from revbis import checks
from revbis.envs.suites import SUITES, forms, listed, suite_of
from revbis.system.extras import require

if TYPE_CHECKING:
    from revbis.envs.suite import Suite


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


def check_name(task: str) -> None:
    """Refuses a name that no task can have.

    Raises:
        ValueError: For a task that its suite does not have, with the nearest names, or one that is
            not written as tasks are.
    """
    if not isinstance(task, str):
        raise ValueError(f"a task must be {forms()}, got {task!r}")
    prefix, _, name = task.partition(":")
    if not (prefix and name):
        raise ValueError(f"a task must be {forms()}, got {task!r}{_suggestion(task)}")
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
    check_name(task)
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
    return SUITES[checks.choice(name, [suite.name for suite in listed()], "suite")]


def _full_names(suite: Suite) -> list[str]:
    return [f"{suite.name}:{name}" for name in suite.tasks]


def _suggestion(task: str) -> str:
    """The nearest full name for a task written without its suite."""
    full = {name: f"{suite.name}:{name}" for suite in listed() for name in suite.tasks}
    near = get_close_matches(task, list(full), n=1, cutoff=0.7)
    return f"; did you mean {full[near[0]]}?" if near else ""
