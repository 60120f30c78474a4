"""Tasks: how they look and what a custom environment gets wrong."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

import tyro

from revbis.commands.console import print_table, step_bar


def preview(
    task: Annotated[str, tyro.conf.Positional],
    seed: int = 1,
    pixels: int = 84,
    action_repeat: int = 2,
    video: Path | None = None,
    out: Path | None = None,
) -> None:
    """Draws a task over an episode of random actions: both qualities, and with distractors.

    Prints observation, action, horizon, the return of a random policy and steps per second; writes
    a contact sheet. Takes some seconds.

    Args:
        task: dmc:NAME, metaworld:NAME, gym:ID or package.module:factory.
        seed: Seed of the episode and of the actions.
        pixels: Side of the pictures.
        action_repeat: Simulator steps for one action.
        video: Folder of videos or image sequences to show behind the task too.
        out: The PNG to write; preview-TASK.png when not given.
    """
    from revbis.envs.tasks import check_name
    from revbis.system.extras import require_gymnasium

    check_name(task)
    require_gymnasium(task)
    from revbis.envs.preview import draw_sheet
    from revbis.envs.preview import preview as look

    settings = {"seed": seed, "pixels": pixels, "action_repeat": action_repeat}
    with step_bar(5) as advance:
        shown = look(
            task,
            **settings,
            video=None if video is None else str(video),
            report=lambda row: advance(f"{task}: {row}"),
        )
    path = out or Path(f"preview-{task.replace(':', '-').replace('/', '-')}.png")
    path.parent.mkdir(parents=True, exist_ok=True)
    draw_sheet(shown, path)
    rows = [{"": name, task: value} for name, value in shown.numbers().items()]
    print_table("", rows)
    print(f"written to {path}")


def check(task: Annotated[str, tyro.conf.Positional]) -> None:
    """Plays an environment and says what training would stumble over. Exits with 1 if anything.

    Args:
        task: package.module:factory, a function without arguments that returns a gymnasium.Env; or
            gym:ID.
    """
    from revbis.system.extras import require_gymnasium

    require_gymnasium(task)
    from revbis.envs.check import check_environment
    from revbis.envs.gymnasium import make_custom, make_registered

    if task.startswith(("dmc:", "metaworld:")) or ":" not in task:
        raise ValueError(f"give package.module:factory or gym:ID, got {task!r}")
    name = task.removeprefix("gym:")
    env = make_custom(task) if name == task else make_registered(name)
    findings = check_environment(env)
    for finding in findings:
        print(f"{finding.kind:>7}: {finding.text}")
    count = Counter(finding.kind for finding in findings)
    if count["wrong"]:
        print(f"{task}: {count['wrong']} to mend, {count['advice']} to think about")
        sys.exit(1)
    print(
        f"{task}: nothing wrong found, {count['advice']} to think about; train with --task {task}"
    )


def names() -> None:
    """Lists every task, and what is to be installed for those that cannot be made yet."""
    from revbis.envs import missing, task_names

    for suite in ("dmc", "metaworld"):
        print("\n".join(task_names(suite)))
        text = missing(suite)
        if text is not None:
            print(f"revbis: {text}", file=sys.stderr)


COMMANDS = {"preview": preview, "check": check, "list": names}
