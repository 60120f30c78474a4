"""What is derived from a run's seed: a seed for each episode, and one for the replay buffer.

The agent and the environments of a run take its seed itself.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """Consumers of random numbers; no two have a seed in common. Results depend on the numbers."""

    TRAINING = 0  # episodes that the agent learns from
    EVALUATION = 1  # episodes of the evaluations during training
    REPLAY = 2  # batches, and shifts of images
    NEIGHBOURS = 3  # episodes of `revbis neighbours`
    YARDSTICKS = 4  # episodes that yardsticks are measured on
    COMMAND = 5  # episodes of `revbis eval`


def derive_seed(run_seed: int, stream: Stream, *position: int) -> int:
    """A seed that is a function of the run's seed, the consumer and a position in its stream.

    Episodes therefore do not depend on earlier ones, and a run can resume between episodes without
    the simulator's state.
    """
    words = np.random.SeedSequence([run_seed, int(stream), *position]).generate_state(1)
    return int(words[0])


def episode_seeds(run_seed: int, stream: Stream, episodes: int) -> list[int]:
    """The seeds of the first episodes of a stream."""
    return [derive_seed(run_seed, stream, number) for number in range(episodes)]
