"""How far a run is, and its records: JSON lines, TensorBoard, Weights & Biases."""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from revbis.io.files import Record, atomic_write, line_of, naming
from revbis.io.schema import CountOrZero, EvaluationLine, Seed
from revbis.runs.folder import ALARMS, EVALUATIONS, TENSORBOARD, TRAINING, WANDB, WANDB_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    import torch

_LOG = logging.getLogger("revbis")


@dataclass
class Progress:
    """Counters of a run.

    Attributes:
        frames: Simulator steps.
        agent_steps: Actions.
        updates: Updates.
        episodes: Finished episodes.
        evaluations: Evaluations.
        largest_reward: Largest absolute reward of an agent step.
    """

    frames: CountOrZero = 0
    agent_steps: CountOrZero = 0
    updates: CountOrZero = 0
    episodes: CountOrZero = 0
    evaluations: CountOrZero = 0
    largest_reward: float = 0.0


class SavedEpisode(TypedDict):
    """The running episode in a checkpoint."""

    seed: Seed
    actions: list[list[float]]
    total: float
    observation: str


class SavedRecords(TypedDict):
    """A run's records in a checkpoint."""

    evaluations: list[EvaluationLine]
    alarms: list[dict[str, Any]]
    train_bytes: CountOrZero


class SavedState(TypedDict):
    """The content of a checkpoint's state.json, except for the replay buffer's state."""

    progress: Progress
    seconds: dict[str, float]
    records: SavedRecords
    raised: list[str]
    last_return: float | None
    episode: SavedEpisode | None


@dataclass(frozen=True)
class Status:
    """What the progress line shows.

    Attributes:
        progress: Counters.
        last_return: Return of the last training episode.
        last_evaluation: Mean return of the last evaluation.
        agent: The agent's status, such as the coefficient c.
        seconds: Seconds by phase.
        frames_per_second: Since this process has warmed up; 0 until then.
        evaluating: Number of the evaluation episode that is played, and how many there are.
    """

    progress: Progress
    last_return: float | None
    last_evaluation: float | None
    agent: dict[str, float]
    seconds: dict[str, float]
    frames_per_second: float
    evaluating: tuple[int, int] | None = None


def agent_status(record: Mapping[str, Any]) -> dict[str, float]:
    """The agent's status in an evaluation or in progress.json; older records have c only."""
    status: Mapping[str, Any] = record.get("status", {"c": record.get("c")})
    return {name: value for name, value in status.items() if value is not None}


class Averages:
    """Means of the metrics of several updates; they stay tensors until `take`."""

    def __init__(self) -> None:
        self._sums: dict[str, torch.Tensor] = {}
        self._counts: dict[str, int] = {}

    @property
    def empty(self) -> bool:
        """Whether nothing was added since the last `take`."""
        return not self._sums

    def add(self, metrics: dict[str, torch.Tensor]) -> None:
        """Adds the metrics of one update."""
        for name, value in metrics.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value
            self._counts[name] = self._counts.get(name, 0) + 1

    def take(self) -> dict[str, float]:
        """Returns the means and resets them."""
        means = {name: float(total) / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts = {}, {}
        return means


class Records:
    """The records of one run.

    There are few evaluations and alarms: every checkpoint contains them, and their files are
    rewritten as a whole. Training lines are appended; a resumed run first removes those that came
    after its checkpoint.

    Args:
        folder: The run's folder.
        tensorboard: Write TensorBoard files, if TensorBoard is installed.
        wandb: Weights & Biases project, if any.
        run: The run's settings, for Weights & Biases.
        resumed: Frame of the checkpoint that the run resumes from; TensorBoard hides what came
            after it.
        guard: Called before anything is written; raises if this process may no longer write.
        evaluated: Called after each evaluation, with its record.
    """

    def __init__(
        self,
        folder: Path,
        *,
        tensorboard: bool,
        wandb: str | None,
        run: dict[str, Any],
        resumed: int | None = None,
        guard: Callable[[], None] = lambda: None,
        evaluated: Callable[[Record], None] = lambda _: None,
    ) -> None:
        self.folder, self._guard, self._evaluated = folder, guard, evaluated
        self.evaluations: list[Record] = []
        self.alarms: list[Record] = []
        self._train = folder / TRAINING
        self._sinks: list[Any] = []
        if tensorboard:
            self._sinks += _tensorboard(folder / TENSORBOARD, resumed)
        if wandb:
            self._sinks += _wandb(wandb, folder, run)

    def train(self, record: Record) -> None:
        """Appends a line to train.jsonl."""
        self._guard()
        with naming(self._train), self._train.open("a") as file:
            file.write(line_of(record))
        self._send("train", record)

    def evaluation(self, record: Record) -> None:
        """Adds a line to eval.jsonl."""
        self.evaluations.append(record)
        self._write(EVALUATIONS, self.evaluations)
        self._send("eval", record)
        self._evaluated(record)

    def alarm(self, record: Record) -> None:
        """Adds a line to alarms.jsonl."""
        self.alarms.append(record)
        self._write(ALARMS, self.alarms)

    def state(self) -> dict[str, Any]:
        """The records as a checkpoint stores them."""
        size = self._train.stat().st_size if self._train.exists() else 0
        return {"evaluations": self.evaluations, "alarms": self.alarms, "train_bytes": size}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores the records of a checkpoint."""
        self.evaluations, self.alarms = list(state["evaluations"]), list(state["alarms"])
        self._write(EVALUATIONS, self.evaluations)
        if self.alarms or (self.folder / ALARMS).exists():
            self._write(ALARMS, self.alarms)
        if self._train.exists():
            with self._train.open("r+b") as file:
                file.truncate(min(state["train_bytes"], self._train.stat().st_size))

    def close(self) -> None:
        """Closes TensorBoard and Weights & Biases, which are optional: errors are only logged."""
        for sink in self._sinks:
            try:
                sink.close()
            except OSError as problem:
                _LOG.warning("%s: %s", problem.filename, problem.strerror)

    def _write(self, name: str, records: list[Record]) -> None:
        self._guard()
        write_records(self.folder / name, records)

    def _send(self, kind: str, record: Record) -> None:
        yardsticks = record.get("yardsticks", {})  # a record of their own
        flat = record | {f"yardsticks/{name}": value for name, value in yardsticks.items()}
        numbers = {
            f"{kind}/{name}": float(value)
            for name, value in flat.items()
            if isinstance(value, (int, float)) and name != "frames"
        }
        for sink in self._sinks:
            sink.write(numbers, record["frames"])


def write_records(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Writes a file of JSON lines as a whole."""
    atomic_write(path, "".join(line_of({**record}) for record in records).encode())


class _TensorBoard:
    def __init__(self, folder: Path, writer: Any) -> None:
        self._folder, self._writer = folder, writer

    def write(self, numbers: dict[str, float], frames: int) -> None:
        with naming(self._folder):
            for name, value in numbers.items():
                self._writer.add_scalar(name, value, frames)

    def close(self) -> None:
        with naming(self._folder):
            self._writer.close()


class _Wandb:
    def __init__(self, run: Any) -> None:
        self._run = run

    def write(self, numbers: dict[str, float], frames: int) -> None:
        self._run.log({**numbers, "frames": frames})

    def close(self) -> None:
        self._run.finish()


def _tensorboard(folder: Path, resumed: int | None) -> list[_TensorBoard]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return []
    first = None if resumed is None else resumed + 1
    return [_TensorBoard(folder, SummaryWriter(str(folder), purge_step=first))]


def _wandb(project: str, folder: Path, run: dict[str, Any]) -> list[_Wandb]:
    """Starts a Weights & Biases run; without a network it is logged to disk."""
    try:
        import wandb
    except ImportError:
        raise ValueError(
            "--wandb requires wandb, which is not installed; run: pip install wandb"
        ) from None
    identity = wandb_id(folder)
    try:
        session = wandb.init(
            project=project,
            config=run,
            dir=str(folder),
            name=_readable(folder),
            id=identity,
            resume="allow",
        )
    except Exception as problem:  # noqa: BLE001 (an external service must never stop a run)
        _LOG.warning("cannot start Weights & Biases (%s); training continues without it", problem)
        return []
    return [_Wandb(session)]


def wandb_id(folder: Path) -> str:
    """The run's id at Weights & Biases, which no other run has.

    It is kept in a file, because a resumed run may be in another folder (mirrored ones are).
    """
    path = folder / WANDB_ID
    if path.exists():
        return path.read_text()
    # Runs of earlier versions have no such file, but the folder of W&B, and keep their id.
    end = "" if (folder / WANDB).exists() else f"-{secrets.token_hex(4)}"
    atomic_write(path, f"{_readable(folder)}{end}".encode())
    return path.read_text()


def _readable(folder: Path) -> str:
    return "-".join(folder.parts[-4:])
