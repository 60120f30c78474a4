"""What runs will take, before they are started: time, memory and disk. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from revbis.agents.registry import resolve
from revbis.replay.storage import Layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from revbis.config import Config
    from revbis.sweep.driver import Entry

_PROCESS_BYTES = 800_000_000  # Python, PyTorch and a simulator, as measured
_ACTIONS = 32  # more numbers than any action has
_FEATURES = 64  # more than most tasks' own vectors have
_OVER = ("finished", "failed")  # no more attempts are made at such a run


@dataclass(frozen=True)
class Speed:
    """Seconds that the parts of a run take.

    Attributes:
        step: An agent step of the environment, rendering included.
        act: The choice of an action by the networks.
        update: An update.
        episode: Agent steps of an episode, where known: evaluations play whole ones.
    """

    step: float
    act: float
    update: float
    episode: int | None = None


def memory_bytes(config: Config) -> int:
    """Memory of a run: the replay buffer, the activations of an update, and the process."""
    layout = _layout(config)
    frames = layout.frame_bytes if config.replay_storage == "ram" else 0
    activations = activation_bytes(config, config.agent.batch_size)
    return _PROCESS_BYTES + frames + layout.other_bytes + activations


def disk_bytes(config: Config) -> int:
    """Disk space of a run's folder: mostly the replay buffer, which checkpoints contain."""
    layout = _layout(config)
    copies = 2 if config.replay_storage == "disk" else 1  # the buffer's own file, and checkpoints
    return copies * layout.frame_bytes + layout.other_bytes


def activation_bytes(config: Config, batch: int) -> int:
    """Memory of an update with a batch of this size, beside the replay buffer."""
    return config.agent.activation_bytes(config.observation_shape, batch)


def seconds_left(config: Config, done: int, speed: Speed) -> float:
    """Time a run will still take. Its first steps are random: they need no network and no update.

    Args:
        config: The run.
        done: Frames so far.
        speed: What its parts take.
    """
    first = done // config.action_repeat
    steps = max(-(-config.frames // config.action_repeat) - first, 0)
    learning = max(steps - max(config.agent.explore_steps - first, 0), 0)
    training = steps * speed.step + learning * (speed.act + speed.update / config.update_every)
    if not steps or speed.episode is None:
        return training
    evaluations = config.frames // config.eval_every - done // config.eval_every + (done == 0)
    played = evaluations * config.eval_episodes * len(config.splits) * speed.episode
    return training + played * (speed.step + speed.act)


def times_left(entries: Sequence[Entry], speeds: Mapping[str, Speed] | None) -> list[float | None]:
    """Seconds that each run will still take; None where nothing is known, 0 if it is given up.

    Args:
        entries: The runs.
        speeds: As measured, by agent; else runs are taken to be as fast as those that have started.
    """
    if speeds is not None:
        return [_measured_time(entry, speeds.get(agent_of(entry.config))) for entry in entries]
    rates = {entry.name: rate for entry in entries if (rate := _rate(entry)) is not None}
    return [_time_left(entry, entries, rates) for entry in entries]


def representatives(entries: Sequence[Entry]) -> list[Config]:
    """Runs to measure: of each agent one that is still to train, with an objective if there is one.

    The agents differ in what an action and an update take, far more than an agent's objectives do.
    """
    chosen: dict[str, Config] = {}
    for config in (entry.config for entry in entries if entry.state not in _OVER):
        known = chosen.setdefault(agent_of(config), config)
        if resolve(config.method).objective and not resolve(known.method).objective:
            chosen[agent_of(config)] = config
    return list(chosen.values())


def agent_of(config: Config) -> str:
    """Name of a run's agent."""
    return resolve(config.method).agent.name


def together(times: Sequence[float | None], workers: int) -> float | None:
    """Seconds until the last run ends, with `workers` in parallel; None if a time is not known."""
    known = [each for each in times if each is not None]
    if len(known) < len(times):
        return None
    return max(sum(known) / workers, max(known, default=0.0))


def _measured_time(entry: Entry, speed: Speed | None) -> float | None:
    if entry.state in _OVER:
        return 0.0
    return None if speed is None else seconds_left(entry.config, entry.standing.frames, speed)


def _rate(entry: Entry) -> float | None:
    """Frames per second of a run that has learned for as long as it explored.

    Random steps take next to no time: they count neither here nor among the frames left.
    """
    explored = _explored(entry)
    learned = entry.standing.frames - explored
    if learned <= 0 or learned < explored or not entry.standing.seconds:
        return None
    return learned / entry.standing.seconds


def _explored(entry: Entry) -> int:
    """Frames of random actions at the start of a run."""
    return entry.config.agent.explore_steps * entry.config.action_repeat


def _time_left(entry: Entry, entries: Sequence[Entry], rates: dict[str, float]) -> float | None:
    """By the rate of the run itself, of runs of its task and method, of its method, or of all."""
    if entry.state in _OVER:
        return 0.0
    left = max(entry.config.frames - max(entry.standing.frames, _explored(entry)), 0)
    mine = entry.config
    for similar in (
        [entry],
        [e for e in entries if (e.config.task, e.config.method) == (mine.task, mine.method)],
        [e for e in entries if e.config.method == mine.method],
        entries,
    ):
        known = [rates[each.name] for each in similar if each.name in rates]
        if known:
            return left / median(known)
    return None


def _layout(config: Config) -> Layout:
    """The replay buffer as far as it is filled; what is never written takes no memory."""
    records = max(min(config.replay_capacity, config.frames // config.action_repeat), 1)
    side = config.pixels
    shape = (3, side, side) if config.observation == "pixels" else (_FEATURES,)
    return Layout.checked(records, shape, _ACTIONS)
