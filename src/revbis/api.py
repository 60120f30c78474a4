"""Training in Python, as short as the command: `revbis.train` and `revbis.open_run`.

run = revbis.train("dmc:cartpole_swingup", method="simsr-rev-full", frames=20_000)
run.evaluate(episodes=10)["mean_return"]
action = run.agent.act(observation)
run.report()
"""

from __future__ import annotations

import html
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from revbis.cli.console import status_line, step_bar
from revbis.cli.interrupts import stop_signals
from revbis.cli.train import describe
from revbis.io import runtime, schema
from revbis.io.files import Record
from revbis.runs.config import Config
from revbis.runs.folder import CONFIG, unpacked
from revbis.runs.presets import preset_config
from revbis.runs.records import Status

if TYPE_CHECKING:
    from revbis.export import TrainedAgent
    from revbis.runs.run import OpenedRun

OnEvaluation = Callable[[Record], object]
OnStep = Callable[[Status], object]

_LOG = logging.getLogger("revbis")
_REFRESH_SECONDS = 0.5
_MOST_EPISODES = 100_000


def train(
    task: str,
    *,
    method: str = "drqv2",
    preset: str = "cpu",
    on_evaluation: OnEvaluation | None = None,
    on_step: OnStep | None = None,
    progress: bool = True,
    restart: bool = False,
    **settings: Any,
) -> TrainedRun:
    """Trains an agent on a task, as `revbis train` does: same settings, same folder, same numbers.

    Repeating the call resumes an interrupted run; of a finished one it trains nothing. Ctrl-C saves
    the run before `KeyboardInterrupt` is raised; a second one does not wait.

    Args:
        task: dmc:NAME, metaworld:NAME, gym:ID or package.module:factory.
        method: An objective for DrQ-v2 or an agent by name; one of your own is
            package.module:factory, or agent:package.module:factory.
        preset: Where the other settings come from, cpu or paper.
        on_evaluation: Called after each evaluation with its record, the same as in
            `TrainedRun.evaluations`. If it returns True, the run is saved and stops.
        on_step: Called after each agent step with the run's status. If it returns True, the run is
            saved and stops.
        progress: Show how far it is: a line on a terminal, a bar in a notebook.
        restart: Discard the run in the folder and train from frame 0.
        settings: Any setting by the name of its flag, such as frames, seed, out, observation,
            batch_size; `revbis train --help` lists them.

    Raises:
        ValueError: For an unknown name or a wrong value, or if the run cannot be trained or
            resumed.
        TrainingFailedError: If a loss, a weight or an action is not finite.
    """
    observation = "state" if settings.get("observation") == "state" else "pixels"
    config = preset_config(preset, task, method, observation).with_settings(**settings)
    runtime.prepare()
    import torch

    from revbis.runs import run as runs

    stopping, threads = [False], torch.get_num_threads()

    def evaluated(record: Record) -> None:
        if on_evaluation is not None:
            stopping[0] |= _wants_to_stop(on_evaluation(deepcopy(record)))

    try:
        with _signals() as caught, _shown(progress, config.frames) as show:

            def report(status: Status) -> None:
                show(status)
                if on_step is not None and status.evaluating is None:
                    own = replace(status, progress=replace(status.progress))
                    stopping[0] |= _wants_to_stop(on_step(own))

            runs.train(
                config,
                stop=lambda: stopping[0] or bool(caught),
                report=report,
                evaluated=evaluated,
                restart=restart,
            )
    finally:
        torch.set_num_threads(threads)  # the rest of the program keeps its own
    if caught:
        _LOG.warning("saved in %s; repeat the call to resume", config.directory)
        if caught[0] == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + caught[0])
    return TrainedRun(config.directory, trust=True)


def open_run(folder: str | Path, *, trust: bool = False) -> TrainedRun:
    """Opens a run that `revbis train`, a sweep or `revbis.train` wrote, finished or not.

    Args:
        folder: The run's folder.
        trust: Whether code that the folder names, as package.module:factory, may be imported.

    Raises:
        ValueError: If the folder is not a run.
    """
    return TrainedRun(Path(folder), trust=trust)


class TrainedRun:
    """A run: its folder, its records, and its agent at the newest checkpoint.

    Args:
        folder: The run's folder.
        trust: Whether code that the folder names, as package.module:factory, may be imported.

    Attributes:
        folder: The run's folder.
        config: Its settings.
    """

    def __init__(self, folder: Path, *, trust: bool = False) -> None:
        self.folder, self._trust = folder, trust
        self.config = Config.read(unpacked(folder) / CONFIG)

    def __repr__(self) -> str:
        last = "".join(
            f", {record['mean_return']:.1f} at frame {record['frames']:,} of {self.config.frames:,}"
            for record in self.evaluations[-1:]
        )
        return f"TrainedRun({str(self.folder)!r}{last})"

    @property
    def evaluations(self) -> list[Record]:
        """The evaluations during training, the lines of eval.jsonl."""
        from revbis.runs.run import read_evaluations

        return read_evaluations(unpacked(self.folder))

    @property
    def finished(self) -> bool:
        """Whether it has spent its budget of frames."""
        from revbis.runs.folder import is_finished, read_result

        return is_finished(read_result(unpacked(self.folder)), self.config.frames)

    @cached_property
    def agent(self) -> TrainedAgent:
        """The agent: `begin_episode()`, `act(observation)`, `embed(observations)`, `distance`.

        Raises:
            ValueError: If there is no checkpoint yet, or the folder names code without trust.
        """
        from revbis.export import TrainedAgent

        return TrainedAgent(self._opened)

    def evaluate(self, episodes: int = 10, *, seed: int = 1000) -> Record:
        """Plays episodes with the mean action, the same as `revbis eval` with this seed.

        Args:
            episodes: Number of episodes.
            seed: Seed from which the seeds of all episodes are derived.

        Returns:
            mean_return, returns, success_any and success_last, as in `evaluations`.
        """
        schema.integer(episodes, "episodes", 1, _MOST_EPISODES)
        schema.integer(seed, "seed", 0)
        agent = self._opened.agent
        from revbis.envs import make_env
        from revbis.runs.evaluate import evaluate, outcome
        from revbis.runs.seeds import Stream, episode_seeds

        env = make_env(**self.config.environment, seed=seed, distractor_split="eval")
        played = evaluate(agent, env, episode_seeds(seed, Stream.COMMAND, episodes))
        env.close()
        return outcome(played)

    def report(self, out: str | Path | None = None, *, videos: bool = True) -> Path:
        """Writes the page about the run, as `revbis report` does.

        Args:
            out: Folder for the page; `page` in the run's folder if None.
            videos: Whether it has a video and a picture of nearest states.

        Returns:
            The page's path.
        """
        from revbis.analysis.page.writer import PageWriter, page_folder

        folder = page_folder([self.folder]) if out is None else Path(out)
        return PageWriter([self.folder], folder, step_bar, videos=videos, live=False).write()

    @cached_property
    def _opened(self) -> OpenedRun:
        runtime.prepare()  # before torch is imported
        from revbis.runs.run import open_run

        return open_run(self.folder, trust=self._trust)


def _wants_to_stop(answer: object) -> bool:
    """Whether a callback returned True; what others happen to return does not count."""
    import numpy as np

    return isinstance(answer, bool | np.bool_) and bool(answer)


def _signals() -> AbstractContextManager[list[int]]:
    """Collects Ctrl-C, which only the main thread can."""
    alone = threading.current_thread() is threading.main_thread()
    return stop_signals(leave=False) if alone else nullcontext([])


@contextmanager
def _shown(wanted: bool, budget: int) -> Iterator[Callable[[Status], None]]:
    """Shows a status: as a line, as a bar in a notebook, or not at all."""
    if not wanted:
        yield lambda _: None
    elif _in_notebook():
        yield _notebook_bar(budget)
    else:
        with status_line() as show:
            yield lambda status: show(lambda: describe(status, budget))


def _in_notebook() -> bool:
    """Whether this is a notebook's kernel; IPython in a terminal has none."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def _notebook_bar(budget: int) -> Callable[[Status], None]:
    """A bar in the cell's output, updated in place; needs no widgets."""
    from IPython.display import HTML, display

    shown = display(HTML(""), display_id=True)
    last = 0.0

    def show(status: Status) -> None:
        nonlocal last
        frames, now = status.progress.frames, time.monotonic()
        if now - last >= _REFRESH_SECONDS or frames >= budget:
            last = now
            text = html.escape(describe(status, budget))
            bar = f'<progress value="{frames}" max="{budget}" style="width: 20em"></progress>'
            shown.update(HTML(f"{bar} <code>{text}</code>"))

    return show
