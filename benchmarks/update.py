"""An update beside its encoder passes alone, in turns; prints one line of JSON.

python benchmarks/update.py --batch 256 --pixels 84 --preset paper --method simsr-rev
"""

from __future__ import annotations

import sys
from collections import defaultdict
from contextlib import contextmanager
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import tyro

from _measure import print_line
from revbis.io import runtime, schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from revbis.agents import Agent, AgentSettings
    from revbis.agents.drqv2 import DrQV2
    from revbis.agents.taco import Taco
    from revbis.agents.tdmpc import TDMPC
    from revbis.replay import Replay

    Work = dict[str, Callable[[], object]]

COLOURS, EPISODE, ACTIONS = 3, 500, 6
LIMITS = {"batch": (2, 100_000), "pixels": (8, 2048), "repeats": (1, 10**6), "threads": (1, 4096)}


def clock() -> float:
    """CPU time with one thread, which other programs hardly disturb; else the time of day."""
    import torch

    return process_time() if torch.get_num_threads() == 1 else perf_counter()


class Stopwatch:
    """Seconds by part of an update; those of a nested part are not counted twice."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._names: list[str] = []
        self._since = 0.0

    def wrap(self, owner: object, method: str, part: str | Callable[[], str]) -> None:
        """Counts the calls of a method, if the owner has it, as a part."""
        run = getattr(owner, method, None)
        if run is None:
            return

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.part(part if isinstance(part, str) else part()):
                return run(*args, **kwargs)

        setattr(owner, method, timed)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A part; within the objective everything is the objective's."""
        self._switch()
        self._names.append("objective" if "objective" in self._names else name)
        yield
        self._switch()
        self._names.pop()

    def _switch(self) -> None:
        now = clock()
        if self._names:
            self.seconds[self._names[-1]] += now - self._since
        self._since = now


def watch_parts(agent: Any, replay: Replay) -> Stopwatch:
    """Replaces the methods that are parts of an update by ones that are timed."""
    import torch

    watch = Stopwatch()
    for method in ("sample", "sample_sequences", "sample_prioritised", "gather_sequences"):
        watch.wrap(replay, method, "sample")
    watch.wrap(replay, "set_priorities", "priorities")
    if not hasattr(agent, "actor_step"):  # TD-MPC, or an agent that is one part
        parts = {"_targets": "targets", "_model_step": "model", "_actor_step": "actor"}
        for method, part in parts.items():
            watch.wrap(agent, method, part)
        watch.wrap(getattr(agent, "target", None), "follow", "move_target")
        if not hasattr(agent, "_model_step"):
            watch.wrap(agent, "learn", "learn")
        return watch
    watch.wrap(agent, "encode", lambda: "critic" if torch.is_grad_enabled() else "targets")
    for method in ("critic_step", "joint_step", "balanced_step"):
        watch.wrap(agent, method, "critic")
    for method, part in {"targets": "targets", "actor_step": "actor"}.items():
        watch.wrap(agent, method, part)
    watch.wrap(agent, "objective_step", "objective")
    watch.wrap(agent.parts.objective, "forward", "objective")
    watch.wrap(agent.parts, "move_target", "move_target")
    return watch


def work_of(agent: Any, replay: Replay) -> Work:
    """Parts of an update that run alone, by name; gradients are discarded, nothing changes.

    `encoder`: its encoder passes, a lower bound on the time of an update. `objective`: the
    objective, given embeddings. `action`: the choice of an action, for agents that plan.
    """
    from revbis.agents import TDMPC, DrQV2, Taco

    if isinstance(agent, DrQV2):
        return drqv2_work(agent, replay)
    if isinstance(agent, Taco):
        return taco_work(agent, replay)
    return tdmpc_work(agent, replay) if isinstance(agent, TDMPC) else {}


def encoder_passes(encoder: Any, without: list[Any], with_gradient: list[Any]) -> None:
    """Forward passes of some observations, forward and backward passes of others."""
    import torch

    with torch.no_grad():
        for observations in without:
            encoder(observations)
    for observations in with_gradient:
        for parameter in encoder.parameters():
            parameter.grad = None
        features = encoder(observations)
        features.backward(torch.ones_like(features) / features.shape[1])


def drqv2_work(agent: DrQV2, replay: Replay) -> Work:
    """The encoder passes of joint and balanced mode, and the objective."""
    import torch

    batch, parts = replay.sample(agent.settings.batch_size), agent.parts
    objective = parts.objective

    def encode() -> None:
        encoder_passes(parts.encoder, [batch.next_obs], [batch.obs])

    if objective is None:
        return {"encoder": encode}
    z, next_z = torch.randn(2, len(batch.obs), agent.settings.latent_dim)
    actions: dict[str, Any] = dict.fromkeys(objective.policy_actions, batch.action)
    trained = [*objective.representation_parameters(), *objective.coefficient_parameters()]

    def compare() -> None:
        x = z.clone().requires_grad_()
        out = objective(x, batch.action, batch.reward, batch.discount, next_z, **actions)
        torch.autograd.grad(torch.stack([*out.losses.values()]).sum(), [x, *trained])

    return {"encoder": encode, "objective": compare}


def taco_work(agent: Taco, replay: Replay) -> Work:
    """The encoder passes of its mode, and its losses."""
    import torch

    from revbis.agents.taco import sample_batch

    parts, heads, s = agent.parts, agent.parts.objective, agent.settings
    if heads is None:
        batch = replay.sample(s.batch_size)
        return {"encoder": lambda: encoder_passes(parts.encoder, [batch.next_obs], [batch.obs])}
    batch = sample_batch(replay, s.batch_size, s.action_steps)
    window = batch.window
    assert window is not None
    without, with_gradient = [batch.next_obs], [batch.obs]
    without += [] if window.next_obs is None else [window.next_obs]
    (with_gradient if s.mode == "alternating" else without).append(window.obs)
    z, following, positive = torch.randn(3, s.batch_size, s.latent_dim)
    trained = [*heads.parameters(), *parts.tokens.parameters()]

    def compare() -> None:
        x = z.clone().requires_grad_()
        tokens = parts.tokens(window.action.flatten(0, 1)).reshape(s.batch_size, -1)
        loss = heads(x, tokens, batch.reward, following, positive).representation_loss
        torch.autograd.grad(loss, [x, *trained], allow_unused=True)

    encode = lambda: encoder_passes(parts.encoder, without, with_gradient)  # noqa: E731
    return {"encoder": encode, "objective": compare}


def tdmpc_work(agent: TDMPC, replay: Replay) -> Work:
    """The encoder passes of an update, and a plan of the full horizon."""
    import torch

    s = agent.settings
    obs = replay.sample_sequences(s.batch_size, s.horizon, shift="image").obs
    first, *following = obs.unbind(dim=1)
    last = max(s.horizon_steps, s.noise_steps, s.explore_steps)

    def encode() -> None:
        with torch.no_grad():
            for observations in following:
                agent.target.encoder(observations)
        encoder_passes(agent.model.encoder, following, [first])

    image = first[0].numpy()
    return {"encoder": encode, "action": lambda: agent.act(image, last, explore=True)}


def random_replay(pixels: int, settings: AgentSettings, stack: int, records: int = 3000) -> Replay:
    """A replay buffer of random images in episodes of 500 steps, as these settings need it."""
    from revbis.runs.trainer import REPLAYS

    rng, shape = np.random.default_rng(0), (COLOURS, pixels, pixels)
    kind = REPLAYS[settings.prioritised]
    replay = kind(records, shape, ACTIONS, stack=stack, one_step=settings.one_step)

    def frame() -> Any:
        return rng.integers(0, 256, shape, dtype=np.uint8)

    for _ in range(records // (EPISODE + 1)):
        replay.begin(frame())
        for step in range(EPISODE):
            action = rng.uniform(-1, 1, ACTIONS).astype(np.float32)
            replay.add(action, rng.random(), 1.0, frame(), last=step == EPISODE - 1)
    return replay


def measure(agent: Agent, replay: Replay, repeats: int) -> dict[str, Any]:
    """Medians in seconds of updates and of their work alone, in turns, after two of each."""
    work, watch = work_of(agent, replay), watch_parts(agent, replay)
    times: dict[str, list[float]] = defaultdict(list)
    parts: dict[str, list[float]] = defaultdict(list)
    runs: Work = {"update": lambda: agent.update(replay, 0)} | work
    for turn in range(repeats + 2):
        if turn == 2:
            times.clear()
            parts.clear()
        watch.seconds.clear()
        for name, run in runs.items():
            start = clock()
            run()
            times[name].append(clock() - start)
            if name == "update":
                for part, seconds in watch.seconds.items():
                    parts[part].append(seconds)
    alone = {name: median(seconds) for name, seconds in times.items()}
    whole, bound = alone["update"], alone.get("encoder")
    speed = {"seconds_per_update": whole, "encoder_bound_seconds": bound}
    speed["ratio"] = None if bound is None else whole / bound
    by_part = {name: median(seconds) for name, seconds in parts.items()}
    return speed | {"parts": by_part, "alone": alone}


def update(
    method: str = "mico-rev",
    mode: Literal["joint", "alternating", "balanced"] = "joint",
    preset: str = "paper",
    batch: int | None = None,
    pixels: int | None = None,
    repeats: int = 10,
    threads: int | None = None,
    precision: Literal["float32", "bfloat16"] = "float32",
) -> None:
    """Compares an update with its encoder passes alone; prints one line of JSON.

    `seconds_per_update` includes sampling and random shifts. `encoder_bound_seconds` is the time of
    the encoder alone: forward and backward on a batch, forward on the next observations. The two
    are measured in turns; medians are reported; docs/speed.md has figures to compare with. With one
    thread all times are CPU times, which other programs hardly disturb. The bound is that of
    float32, whatever the precision of the update. For agents that plan, `seconds_per_action` is the
    time of a plan of the full horizon.

    Args:
        method: An agent or an objective.
        mode: joint, alternating or balanced; for DrQ-v2 and TACO.
        preset: Sizes of the networks.
        batch: Transitions per batch; by default the preset's.
        pixels: Side of the images; by default the preset's.
        repeats: Number of measured updates.
        threads: CPU threads; by default all that are available to this process.
        precision: Of the update's activations.
    """
    sizes = {"batch": batch, "pixels": pixels, "repeats": repeats, "threads": threads}
    for name, value in sizes.items():
        if value is not None:
            schema.integer(value, f"--{name}", *LIMITS[name])
    runtime.prepare(threads)
    import torch

    from revbis.agents import make_agent, resolve
    from revbis.runs.presets import preset_config

    config = preset_config(preset, "dmc:cheetah_run", method)
    about = {"mode": mode, "precision": precision}
    about = {name: value for name, value in about.items() if name in config.effective()}
    settings = config.with_settings(batch_size=batch or config.agent.batch_size, **about).agent
    side, stack = pixels or config.pixels, config.frame_stack
    agent = make_agent(method, settings, (stack * COLOURS, side, side), ACTIONS, seed=0)
    speed = measure(agent, random_replay(side, settings, stack), repeats)
    alone = speed.pop("alone")
    speed |= {"threads": torch.get_num_threads(), "batch": settings.batch_size, "pixels": side}
    if resolve(method).agent.objectives:
        objective = alone.get("objective", 0.0)
        speed["objective_seconds"] = objective
        speed["objective_share"] = objective / alone["update"]
    if "action" in alone:
        speed["seconds_per_action"] = alone["action"]
    print_line({"benchmark": "update", "method": method, **about, "preset": preset, **speed})


if __name__ == "__main__":
    try:
        tyro.cli(update)
    except (ValueError, ModuleNotFoundError) as problem:
        sys.exit(f"update.py: error: {problem}")
