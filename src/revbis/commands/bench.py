"""Speed, measured side by side on this machine."""

from __future__ import annotations

import json


def env(pixels: int = 84, rounds: int = 15) -> None:
    """Rendering beside the simulators' own, one line of JSON a task.

    `own_fps` is dm_control's or Gymnasium's rendering, `full_fps` and `fast_fps` ours; the ratios
    are medians over rounds in which the three take turns on the same scene. About a minute.

    Args:
        pixels: Side of the pictures.
        rounds: Rounds of ten frames each.
    """
    from revbis.envs.speed import measure_rendering

    for task in ("dmc:cheetah_run", "metaworld:hammer"):
        print(json.dumps(measure_rendering(task, pixels=pixels, rounds=rounds)), flush=True)


COMMANDS = {"env": env}
