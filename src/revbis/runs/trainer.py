"""The training loop: composition root, counters, evaluation, checkpoints, exact resume."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch

from revbis import agents
from revbis.envs import make_env
from revbis.io import schema
from revbis.io.files import digest_of_bytes
from revbis.io.machine import resident_bytes
from revbis.replay import PrioritisedReplay, Replay, TransitionReplay
from revbis.runs import alarms
from revbis.runs.alarms import TrainingFailedError, divergence, write_diagnosis
from revbis.runs.checkpoint import Checkpoint, Checkpoints, DamagedError
from revbis.runs.evaluate import StoppedError, act, evaluate_splits, outcome
from revbis.runs.folder import DIAGNOSIS, STATE
from revbis.runs.memory import stored_records
from revbis.runs.records import Averages, Progress, SavedEpisode, SavedState, Status
from revbis.runs.seeds import Stream, derive_seed, episode_seeds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from revbis.agents import Agent
    from revbis.envs.environment import TaskEnv
    from revbis.runs.alarms import Alarm
    from revbis.runs.config import Config
    from revbis.runs.records import Records

PHASES = ("environment", "rendering", "acting", "sampling", "update", "evaluation", "saving")

REPLAYS: dict[str | None, type[Replay]] = {  # by what an agent draws by priority
    None: Replay,
    "sequences": PrioritisedReplay,
    "transitions": TransitionReplay,
}
_WARM_UP = 20  # agent steps of a process, before its speed is measured: the first are slow


class Clock:
    """Seconds by phase; time outside any phase is `other`.

    Args:
        seconds: Seconds of earlier attempts at the run, by phase.
    """

    def __init__(self, seconds: dict[str, float] | None = None) -> None:
        self._spent = dict.fromkeys((*PHASES, "other"), 0.0) | (seconds or {})
        self._before = sum(self._spent.values())
        self._start = time.perf_counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the time within the context to a phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._spent[name] = self._spent.get(name, 0.0) + time.perf_counter() - start

    def move(self, seconds: float, source: str, target: str) -> None:
        """Moves seconds from one phase to another."""
        self._spent[source] -= seconds
        self._spent[target] += seconds

    @property
    def total(self) -> float:
        """Seconds of the whole run, including earlier attempts."""
        return self._before + time.perf_counter() - self._start

    def split(self) -> dict[str, float]:
        """Seconds by phase; they sum to the total."""
        known = sum(value for name, value in self._spent.items() if name != "other")
        return self._spent | {"other": max(self.total - known, 0.0)}


def make_replay(config: Config, env: TaskEnv, *, capacity: int | None = None) -> Replay:
    """The replay buffer of a run, still empty, of the run's capacity or another one."""
    shape = env.observation_space.shape
    pixels = config.observation == "pixels"
    return REPLAYS[config.agent.prioritised](
        config.replay_capacity if capacity is None else capacity,
        (3, *shape[1:]) if pixels else shape,
        int(env.action_space.shape[0]),
        stack=config.frame_stack if pixels else 1,
        n_step=config.n_step,
        discount=config.discount,
        shift=config.shift,
        seed=derive_seed(config.seed, Stream.REPLAY),
        storage=config.replay_storage,
        directory=config.directory,
        one_step=config.agent.one_step,
        expected=stored_records(config),
    )


def build_agent(config: Config, env: TaskEnv, device: str) -> Agent:
    """The agent of a run, untrained."""
    return agents.make_agent(
        config.method,
        config.agent,
        env.observation_space.shape,
        int(env.action_space.shape[0]),
        seed=config.seed,
        device=device,
        discrete=env.discrete,
    )


def resolve_device(name: str) -> str:
    """The device with this name; `auto` is the best one available."""
    if name != "auto":
        return name
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


@dataclass
class RunningEpisode:
    """An unfinished episode; its seed and its actions reproduce it.

    Attributes:
        seed: Seed of its reset.
        observation: The current observation.
        actions: Actions so far.
        total: Sum of rewards so far.
        frames: Its length so far, in simulator steps.
    """

    seed: int
    observation: NDArray[Any]
    actions: list[NDArray[np.float32]] = field(default_factory=list)
    total: float = 0.0
    frames: int = 0

    def saved(self) -> SavedEpisode:
        """The episode as a checkpoint stores it, in JSON types."""
        return {
            "seed": self.seed,
            "actions": [action.tolist() for action in self.actions],
            "total": self.total,
            "observation": digest_of_bytes(self.observation.tobytes()),
        }


class Trainer:
    """One run: environment, replay buffer, agent and records, and the loop over them."""

    def __init__(
        self, config: Config, records: Records, checkpoints: Checkpoints, device: str
    ) -> None:
        self.config, self.records, self.checkpoints = config, records, checkpoints
        self.env = make_env(**config.environment, seed=config.seed)
        self.eval_envs: dict[str, TaskEnv] = {
            split: make_env(**config.environment, seed=config.seed, distractor_split=split)
            for split in config.splits
        }
        self.replay = make_replay(config, self.env)
        self.agent = build_agent(config, self.env, device)
        self.progress, self.clock = Progress(), Clock()
        self._episode: RunningEpisode | None = None
        self._last_return: float | None = None
        self._averages = Averages()
        self._raised: set[str] = set()
        self._flags = frozenset(config.effective())  # that an alarm may suggest
        # Read again when logging only: a GPU would have to be waited for.
        self._agent_status = self.agent.status()
        self._start: tuple[float, int] | None = None

    def run(
        self,
        stop: Callable[[], bool],
        report: Callable[[Status], None],
        saved: Callable[[], None] = lambda: None,
    ) -> bool:
        """Trains until the budget is spent or `stop` returns True; returns whether it is finished.

        `stop` and `report` are those of `revbis.runs.run.train`; `saved` is called after every
        checkpoint.

        Raises:
            TrainingFailedError: If a loss, a weight or an action is not finite; a diagnosis is
                saved first.
        """
        try:
            return self._run(stop, report, saved)
        except (ArithmeticError, RuntimeError, ValueError) as problem:
            metrics = self._averages.take()
            alarm = divergence(problem, self.agent, metrics, self._flags)
            if alarm is not None:
                self._fail(alarm, metrics)
            raise

    def _run(
        self, stop: Callable[[], bool], report: Callable[[Status], None], saved: Callable[[], None]
    ) -> bool:
        config, progress = self.config, self.progress
        self._start, warm = None, progress.agent_steps + _WARM_UP
        saved_at = progress.frames
        while progress.frames < config.frames:
            if self._evaluation_is_due() and not self._evaluate(stop, report):
                break
            self._step()
            if self._update_is_due():
                self._update()
            if progress.agent_steps % max(config.log_every // config.action_repeat, 1) == 0:
                self._log()
            if progress.frames >= saved_at + config.checkpoint_every:
                self.save()
                saved()
                saved_at = progress.frames
            report(self.status())
            if progress.agent_steps == warm:
                self._start = (time.perf_counter(), progress.frames)
            if stop():
                break
        else:
            if not self._evaluation_is_due() or self._evaluate(stop, report):
                self.save()
                return True
        self.save()
        saved()
        return False

    def status(self, evaluating: tuple[int, int] | None = None) -> Status:
        """The current status of the run; in an evaluation, with the episode's number and count."""
        evaluations = self.records.evaluations
        start, frames = self._start or (-inf, 0)  # of which the speed is 0
        elapsed = time.perf_counter() - start
        return Status(
            progress=self.progress,
            last_return=self._last_return,
            last_evaluation=evaluations[-1]["mean_return"] if evaluations else None,
            agent=self._agent_status,
            seconds=self.clock.split(),
            frames_per_second=(self.progress.frames - frames) / elapsed,
            evaluating=evaluating,
        )

    def save(self) -> None:
        """Writes a checkpoint of everything that determines the rest of the run."""
        with self.clock.phase("saving"):
            state = {
                "config": self.config.as_dict(),
                "progress": vars(self.progress),
                "seconds": self.clock.split(),
                "replay": self.replay.state(),
                "records": self.records.state(),
                "raised": sorted(self._raised),
                "last_return": self._last_return,
                "episode": None if self._episode is None else self._episode.saved(),
            }
            try:
                self.checkpoints.save(
                    self.progress.frames, self.agent.state_dict(), state, self.replay
                )
            except OSError as problem:
                newest = self.checkpoints.newest_frame
                intact = "" if newest is None else f", the one at frame {newest:,} is intact"
                raise OSError(
                    problem.errno,
                    f"{problem.strerror}; the checkpoint at frame {self.progress.frames:,} was not "
                    f"written{intact}: free some disk space and repeat the command",
                    problem.filename or str(self.checkpoints.folder),
                ) from None

    def restore(self, checkpoint: Checkpoint) -> str | None:
        """Resumes from a checkpoint.

        The running episode is replayed with the same seed and actions, without learning. If the
        task does not reach the same observation, the episode is truncated, as by a time limit.

        Returns:
            A warning, if the episode had to be truncated.

        Raises:
            DamagedError: If any part of the checkpoint does not fit this run.
        """
        try:
            state: SavedState = schema.convert(checkpoint.state, SavedState, STATE)
            saved, size = state["episode"], self.env.action_space.shape[0]
            if saved is not None and any(len(action) != size for action in saved["actions"]):
                raise ValueError(f"its episode has actions whose length is not {size}")
            self.agent.load_state_dict(checkpoint.agent)
            self.replay.restore(checkpoint.records(), checkpoint.state["replay"])
        except DamagedError:
            raise
        except Exception as problem:  # noqa: BLE001 (a forged state can fail in any way; ours cannot)
            raise DamagedError(
                f"checkpoint {checkpoint.folder} does not fit this run: {schema.reason(problem)}"
            ) from None
        self.records.restore(checkpoint.state["records"])  # validated, and with all their keys
        self.progress = state["progress"]
        self.clock = Clock(state["seconds"])
        self._raised, self._last_return = set(state["raised"]), state["last_return"]
        self._agent_status = self.agent.status()
        if saved is None:
            return None
        self._episode = self._replayed(saved)
        if self._episode is not None:
            return None
        self.replay.cut()
        return "the task is not reproducible from its seed: the running episode was truncated"

    def _replayed(self, saved: SavedEpisode) -> RunningEpisode | None:
        """The running episode; None if the task does not come to the same observation."""
        observation, _ = self.env.reset(seed=saved["seed"])
        episode = RunningEpisode(saved["seed"], observation, total=saved["total"])
        for action in np.asarray(saved["actions"], dtype=np.float32):
            episode.observation, _, terminated, truncated, info = self.env.step(action)
            if terminated or truncated:
                return None
            episode.actions.append(action)
            episode.frames = info["frames"]
        reached = digest_of_bytes(episode.observation.tobytes())
        return episode if reached == saved["observation"] else None

    def _begin_episode(self) -> RunningEpisode:
        seed = derive_seed(self.config.seed, Stream.TRAINING, self.progress.episodes)
        observation, info = self.env.reset(seed=seed)
        self.replay.begin(info.get("frame", observation))
        self.agent.begin_episode()
        return RunningEpisode(seed, observation)

    def _step(self) -> None:
        """One agent step: act, step the environment, store the transition."""
        progress, clock = self.progress, self.clock
        drawing = self.env.render_seconds
        with clock.phase("environment"):
            episode = self._episode = self._episode or self._begin_episode()
        with clock.phase("acting"):
            action = act(self.agent, episode.observation, progress.agent_steps, explore=True)
        with clock.phase("environment"):
            observation, reward, terminated, truncated, info = self.env.step(action)
            last = terminated or truncated
            frame = info.get("frame", observation)
            self.replay.add(action, reward, info["discount"], frame, last=last)
        clock.move(self.env.render_seconds - drawing, "environment", "rendering")
        progress.frames += info["frames"] - episode.frames
        progress.agent_steps += 1
        progress.largest_reward = max(progress.largest_reward, abs(reward))
        episode.actions.append(action)
        episode.total += reward
        episode.frames, episode.observation = info["frames"], observation
        if last:
            progress.episodes += 1
            self._last_return, self._episode = episode.total, None

    def _update_is_due(self) -> bool:
        steps = self.progress.agent_steps
        return (
            steps > self.config.agent.explore_steps
            and steps % self.config.update_every == 0
            and len(self.replay) > 0
        )

    def _evaluation_is_due(self) -> bool:
        """At the start, at the first step at or after each multiple of `eval_every`, at the end."""
        if not self.records.evaluations:
            return True
        frames, last = self.progress.frames, int(self.records.evaluations[-1]["frames"])
        every = 1 if frames >= self.config.frames else self.config.eval_every
        return frames // every > last // every

    def _due_frame(self) -> int:
        """The frame that the evaluation is due at, from which its episodes are seeded.

        It does not depend on the budget, except for the evaluation that only the budget demands: a
        run that is extended has the evaluations of one that was longer from the start.
        """
        frames, every = self.progress.frames, self.config.eval_every
        evaluations = self.records.evaluations
        if evaluations and frames // every == int(evaluations[-1]["frames"]) // every:
            return self.config.frames
        return frames // every * every

    def _update(self) -> None:
        progress, sampling = self.progress, self.replay.sample_seconds
        with self.clock.phase("update"):
            metrics = self.agent.update(
                self.replay, progress.agent_steps, with_metrics=self._averages.empty
            )
        self.clock.move(self.replay.sample_seconds - sampling, "update", "sampling")
        progress.updates += 1
        self._averages.add(metrics)

    def _evaluate(self, stop: Callable[[], bool], report: Callable[[Status], None]) -> bool:
        """Plays evaluation episodes and records them; nothing and False if asked to stop."""
        config, progress = self.config, self.progress
        due = self._due_frame()
        seeds = [
            derive_seed(config.seed, Stream.EVALUATION, due, i) for i in range(config.eval_episodes)
        ]

        def check(*at: int) -> None:
            if at:
                report(self.status((at[0], at[1])))
            if stop():
                raise StoppedError

        try:
            with self.clock.phase("evaluation"):
                episodes = evaluate_splits(self.agent, self.eval_envs, seeds, check)
            yardsticks = self._yardsticks(check) if self._yardsticks_are_due() else {}
        except StoppedError:
            return False
        on_training = outcome(episodes["train"], "train_") if "train" in episodes else {}
        self.records.evaluation(
            {
                "frames": progress.frames,
                "agent_steps": progress.agent_steps,
                "updates": progress.updates,
                "seconds": round(self.clock.total, 3),
                **outcome(episodes["eval"]),
                **on_training,
                **yardsticks,
                "status": self.agent.status(),
            }
        )
        progress.evaluations += 1
        evaluations = self.records.evaluations
        self._raise(
            alarms.stalled(
                [record["frames"] for record in evaluations],
                [record["mean_return"] for record in evaluations],
                config.frames,
                self._flags,
            )
        )
        return True

    def _yardsticks_are_due(self) -> bool:
        frames, every = self.progress.frames, self.config.yardstick_every
        measured = [each["frames"] for each in self.records.evaluations if "yardsticks" in each]
        last = frames >= self.config.frames
        return every is not None and (
            not measured or last or frames // every > measured[-1] // every
        )

    def _yardsticks(self, check: Callable[[], None]) -> dict[str, Any]:
        """The yardsticks, always on the same episodes, whatever the agent; `check` may stop it."""
        from revbis.representation.yardsticks import LEAST_EPISODES, measure_agent

        config = self.config
        episodes = max(config.eval_episodes, LEAST_EPISODES)
        seeds = episode_seeds(config.seed, Stream.YARDSTICKS, episodes)
        with self.clock.phase("yardsticks"):
            values = measure_agent(
                config.environment, config.discount, self.agent, seeds, between=check
            )
        return {"yardsticks": values}

    def _log(self) -> None:
        """Writes a line of train.jsonl and checks the alarms."""
        metrics = self._averages.take()
        failure = alarms.non_finite(metrics, self._flags)
        if failure is not None:
            self._fail(failure, metrics)
        largest, discount = self.progress.largest_reward, self.config.discount
        self._raise(alarms.exploding_critic(metrics, largest, discount, self._flags))
        self._raise(alarms.collapsed_embedding(metrics, self._flags))
        self._raise(alarms.silent_objective(metrics, self._flags))
        self._raise(alarms.constant_rewards(metrics, largest, self._flags))
        self._agent_status = self.agent.status()
        seconds = {f"seconds/{name}": round(s, 3) for name, s in self.clock.split().items()}
        self.records.train(
            {
                "frames": self.progress.frames,
                "agent_steps": self.progress.agent_steps,
                "updates": self.progress.updates,
                "episodes": self.progress.episodes,
                "seconds": round(self.clock.total, 3),
                "episode_return": self._last_return,
                "replay_size": len(self.replay),
                "resident_bytes": resident_bytes(),
                **self._agent_status,
                **metrics,
                **seconds,
            }
        )

    def _raise(self, alarm: Alarm | None) -> None:
        """Records an alarm, once per run for each kind."""
        if alarm is not None and alarm.name not in self._raised:
            self._raised.add(alarm.name)
            self.records.alarm({"frames": self.progress.frames, **vars(alarm)})
            logging.getLogger("revbis").warning("%s", alarm.text)

    def _fail(self, alarm: Alarm, metrics: dict[str, float]) -> NoReturn:
        """Saves a diagnosis and raises."""
        self._raise(alarm)
        folder = self.records.folder / DIAGNOSIS
        facts = {"alarm": vars(alarm), "progress": vars(self.progress), "metrics": metrics}
        write_diagnosis(folder, self.agent.state_dict(), facts)
        raise TrainingFailedError(
            f"frame {self.progress.frames:,}: {alarm.text}. Networks and last metrics are in "
            f"{folder}; the last checkpoint is untouched"
        )
