"""Every suite: one line for each, and `register` for those of other packages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from revbis.envs import custom, dmc, metaworld, registered

if TYPE_CHECKING:
    from revbis.envs.suite import Suite

SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        dmc.SUITE,
        metaworld.SUITE,
        registered.SUITE,
    )
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
    return SUITES.get(prefix, custom.SUITE) if colon else custom.SUITE


def forms() -> str:
    """How a task may be written, for messages."""
    return f"{', '.join(suite.form for suite in SUITES.values())} or {custom.SUITE.form}"


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
