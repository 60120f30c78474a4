"""Lists and previews tasks, and checks your own environment."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

import tyro

from revbis.cli.console import print_table, step_bar


def preview_command(
    task: Annotated[str, tyro.conf.Positional],
    seed: int = 1,
    pixels: int = 84,
    action_repeat: int = 2,
    video: Path | None = None,
    out: Path | None = None,
) -> None:
    """Renders an episode of random actions: in both qualities, and with distractors.

    Prints observation, action, horizon, the return of a random policy and steps per second, and
    writes a contact sheet. Takes a few seconds.

    Args:
        task: The task; revbis env list shows them.
        seed: Seed of the episode and of the actions.
        pixels: Side of the images.
        action_repeat: Simulator steps per action.
        video: Folder of videos or image sequences, to preview as a distractor too.
        out: PNG file to write; by default preview-TASK.png.
    """
    from revbis.envs.suites import check_task_name, require_gymnasium

    check_task_name(task)
    require_gymnasium(task)
    from revbis.envs.preview import draw_sheet, preview

    settings = {"seed": seed, "pixels": pixels, "action_repeat": action_repeat}
    with step_bar(6) as advance:
        shown = preview(
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


def check_command(task: Annotated[str, tyro.conf.Positional]) -> None:
    """Plays an environment and prints what would disturb training. Exits with 1 on errors.

    Args:
        task: gym:ID or package.module:factory, a function without arguments that returns a
            gymnasium.Env.
    """
    from revbis.envs.suites import require_gymnasium, suite_of

    require_gymnasium(task)
    from revbis.envs.check import check_environment, has_images

    suite = suite_of(task)
    if suite.gymnasium_env is None or ":" not in task:
        raise ValueError(f"the task must be package.module:factory or gym:ID, got {task!r}")
    env = suite.gymnasium_env(suite.local_name(task))
    violations = check_environment(env)
    for violation in violations:
        print(f"{violation.kind:>7}: {violation.text}")
    count = Counter(violation.kind for violation in violations)
    if count["wrong"]:
        print(f"{task}: {count['wrong']} to fix, {count['advice']} to consider")
        sys.exit(1)
    command = f"revbis train --task {task}{'' if has_images(env) else ' --observation state'}"
    print(f"{task}: nothing wrong, {count['advice']} to consider; train with: {command}")


def names() -> None:
    """Lists every task, and what to install for suites that are not installed."""
    from revbis.envs import task_names
    from revbis.envs.suites import listed

    for suite in listed():
        print("\n".join(task_names(suite.name)))
        text = suite.missing()
        if text is not None:
            print(f"revbis: {text}", file=sys.stderr)


COMMANDS = {"preview": preview_command, "check": check_command, "list": names}
