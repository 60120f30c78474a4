"""Resident memory of a training run over 20,000 agent steps, once its replay buffer is full."""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from revbis.io import runtime

STEPS, FULL, LIMIT = 22_000, 2_000, 0.05


def main() -> None:
    """Trains on small images with evaluations and checkpoints on the way; prints a line of JSON."""
    runtime.prepare(1)
    from revbis.io.machine import resident_bytes
    from revbis.runs.presets import preset_config
    from revbis.runs.run import train

    seen: dict[int, int] = {}

    def note(status: object) -> None:
        steps = status.progress.agent_steps  # type: ignore[attr-defined]
        if steps % 1000 == 0:
            seen[steps] = resident_bytes()

    with TemporaryDirectory() as folder:
        config = preset_config("cpu", "dmc:cartpole_balance", "simsr-rev").with_settings(
            frames=STEPS * 4,
            eval_every=STEPS,
            eval_episodes=1,
            checkpoint_every=STEPS,
            pixels=32,
            channels=8,
            batch_size=16,
            hidden=32,
            replay_capacity=1000,
            threads=1,
            out=Path(folder),
        )
        train(config, report=note)
    start, end = seen[FULL], seen[STEPS]
    growth = {"start_mb": start / 1e6, "end_mb": end / 1e6, "growth": end / start - 1}
    print(json.dumps({"steps": STEPS - FULL, **growth, "most_mb": max(seen.values()) / 1e6}))
    sys.exit(growth["growth"] > LIMIT)


if __name__ == "__main__":
    main()
