"""Dreamer-v3 (Hafner et al. 2023) by sheeprl, driven by this package's loop and replay buffer."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from revbis.agents.base import BaseAgent
from revbis.agents.common import (
    as_device,
    as_settings,
    as_shape,
    check_observation,
    check_observations,
    check_state,
    fitting,
)
from revbis.agents.settings import DreamerV3Settings
from revbis.io import schema
from revbis.io.plugins import require

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from revbis.agents.base import Metrics
    from revbis.agents.settings import Shape
    from revbis.replay import Replay, Sequences

_STREAMS = ("parameters", "explore", "update", "evaluate")


class Streams:
    """Named streams of random numbers; the global generators are left as they were.

    Args:
        seed: Seed of all streams.
        device: The device that numbers are drawn on, besides the CPU.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self._cuda = [device] if device.type == "cuda" else []
        words = np.random.SeedSequence(seed).generate_state(len(_STREAMS))
        self._seeds = dict(zip(_STREAMS, map(int, words), strict=True))
        self._states: dict[str, list[Tensor]] = {}
        for name in _STREAMS:
            self.restart(name)

    def restart(self, name: str) -> None:
        """Begins a stream anew."""
        with torch.random.fork_rng(self._cuda):
            torch.manual_seed(self._seeds[name])
            self._states[name] = self._read()

    @contextmanager
    def drawing(self, name: str) -> Iterator[None]:
        """Within it, the global generators continue the stream."""
        with torch.random.fork_rng(self._cuda):
            self._write(self._states[name])
            yield
            self._states[name] = self._read()

    def state(self) -> dict[str, list[Tensor]]:
        """The streams that training draws from."""
        return {name: self._states[name] for name in ("explore", "update")}

    def restore(self, state: dict[str, list[Tensor]]) -> None:
        """Continues the streams from what `state` returned."""
        for name in ("explore", "update"):
            generators = [torch.Generator() for _ in state[name][:1]]  # refuses a foreign state
            generators[0].set_state(state[name][0].cpu())
            self._states[name] = [each.cpu() for each in state[name]]

    def _read(self) -> list[Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(each) for each in self._cuda)]

    def _write(self, states: list[Tensor]) -> None:
        torch.set_rng_state(states[0])
        for device, state in zip(self._cuda, states[1:], strict=False):
            torch.cuda.set_rng_state(state, device)


SUBJECT, EXTRA = "dreamerv3", "dreamer"


class Parts(NamedTuple):
    """What sheeprl builds; `train` takes all of it.

    Attributes:
        fabric: Lightning's, for one device.
        config: sheeprl's configuration.
        networks: World model, actor, critic and target critic, in the order `train` takes them.
        optimisers: Of the first three.
        moments: Percentiles of the returns.
        player: Acts; it shares the networks' parameters and has a memory of its episode.
        key: Name of the observation in `train`'s data.
    """

    fabric: Any
    config: Any
    networks: dict[str, Any]
    optimisers: dict[str, Any]
    moments: Any
    player: Any
    key: str


def build_parts(
    shape: Shape, action_size: int, settings: DreamerV3Settings, device: torch.device
) -> Parts:
    """Builds the parts; parameters are drawn from PyTorch's global generator.

    Raises:
        ModuleNotFoundError: If sheeprl is not installed; with the line that installs it.
    """
    key = "rgb" if len(shape) == 3 else "state"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs, about devices and settings not in use here
        require("sheeprl", EXTRA, SUBJECT)
        import hydra
        from gymnasium import spaces
        from lightning.fabric import Fabric
        from sheeprl.algos.dreamer_v3.agent import build_agent
        from sheeprl.algos.dreamer_v3.utils import Moments

        config = _config(shape, settings)
        place = 1 if device.index is None else [device.index]
        fabric = Fabric(accelerator=device.type, devices=place, precision="32-true")
        box = spaces.Box(-np.inf, np.inf, shape, np.float32)
        *networks, player = build_agent(
            fabric, (action_size,), True, config, spaces.Dict({key: box})
        )
        names = ("world_model", "actor", "critic", "target_critic")
        by_name = dict(zip(names, networks, strict=True))
        optimisers = {
            name: fabric.setup_optimizers(
                hydra.utils.instantiate(
                    config.algo[name].optimizer, params=by_name[name].parameters(), _convert_="all"
                )
            )
            for name in names[:3]
        }
    wanted = config.algo.actor.moments
    limits = (wanted.percentile.low, wanted.percentile.high)
    moments = Moments(wanted.decay, wanted.max, *limits).to(device)
    return Parts(fabric, config, by_name, optimisers, moments, player, key)


def _config(shape: Shape, settings: DreamerV3Settings) -> Any:
    """The configuration of Dreamer-v3 that comes with sheeprl, with these settings."""
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf
    from sheeprl.utils.utils import dotdict

    with initialize_config_module(config_module="sheeprl.configs", version_base="1.3"):
        full = compose("config", [f"{name}={value}" for name, value in _values(shape, settings)])
    parts = {
        name: OmegaConf.to_container(full[name], resolve=True) for name in ("algo", "distribution")
    }
    env = {"num_envs": 1, "screen_size": shape[-1] if len(shape) == 3 else 64}
    return dotdict(parts | {"env": env, "fabric": {"precision": "32-true"}})


def _values(shape: Shape, settings: DreamerV3Settings) -> list[tuple[str, object]]:
    """The settings under sheeprl's names."""
    images, vectors = ("[rgb]", "[]") if len(shape) == 3 else ("[]", "[state]")
    model = "algo.world_model"
    return [
        ("exp", "dreamer_v3"),
        ("algo.cnn_keys.encoder", images),
        ("algo.cnn_keys.decoder", images),
        ("algo.mlp_keys.encoder", vectors),
        ("algo.mlp_keys.decoder", vectors),
        ("algo.per_rank_batch_size", settings.batch_size),
        ("algo.per_rank_sequence_length", settings.sequence_length),
        ("algo.dense_units", settings.hidden),
        ("algo.mlp_layers", settings.layers),
        (f"{model}.encoder.cnn_channels_multiplier", settings.channels),
        (f"{model}.recurrent_model.recurrent_state_size", settings.recurrent_dim),
        (f"{model}.transition_model.hidden_size", settings.hidden),
        (f"{model}.representation_model.hidden_size", settings.hidden),
        (f"{model}.stochastic_size", settings.groups),
        (f"{model}.discrete_size", settings.classes),
        (f"{model}.optimizer.lr", settings.learning_rate),
        ("algo.horizon", settings.horizon),
        ("algo.actor.ent_coef", settings.entropy_weight),
        ("algo.actor.optimizer.lr", settings.actor_learning_rate),
        ("algo.critic.optimizer.lr", settings.critic_learning_rate),
    ]


_MEMORY = ("actions", "recurrent_state", "stochastic_state")  # of sheeprl's player
_METRICS = {  # sheeprl's metrics under this package's names
    "Loss/world_model_loss": "model_loss",
    "Loss/observation_loss": "observation_loss",
    "Loss/reward_loss": "reward_loss",
    "Loss/state_loss": "state_loss",
    "Loss/continue_loss": "continue_loss",
    "Loss/policy_loss": "actor_loss",
    "Loss/value_loss": "critic_loss",
    "State/kl": "kl",
    "State/post_entropy": "posterior_entropy",
    "State/prior_entropy": "prior_entropy",
    "Grads/world_model": "gradient_norm",
    "Grads/actor": "actor_gradient_norm",
    "Grads/critic": "critic_gradient_norm",
}


class DreamerV3(BaseAgent):
    """sheeprl's world model, actor and critic, which learn from sequences and imagination.

    Training and evaluation each have a memory of their episode and random numbers of their own: an
    episode's kind follows from the first action asked for after `begin_episode`. Evaluation's
    random numbers start anew with each episode.

    Args:
        observation_shape: (C, H, W) of stacked frames of uint8, or (D,) of float32 vectors.
        action_size: Dimension of an action.
        settings: The settings.
        seed: Seed of everything random in the agent.
        device: Device of the networks.

    Raises:
        ValueError: For sizes that do not match.
        ModuleNotFoundError: If sheeprl is not installed.
    """

    def __init__(
        self,
        observation_shape: Sequence[int],
        action_size: int,
        settings: DreamerV3Settings,
        *,
        seed: int,
        device: str | torch.device = "cpu",
    ) -> None:
        settings = as_settings(settings, DreamerV3Settings)
        self.observation_shape = as_shape(observation_shape)
        settings.check(self.observation_shape)
        self.action_size: int = schema.convert(action_size, schema.Size, "action_size")
        self.settings, self.device = settings, as_device(device)
        self._streams = Streams(schema.integer(seed, "seed", 0), self.device)
        with self._streams.drawing("parameters"):
            self.parts = build_parts(
                self.observation_shape, self.action_size, settings, self.device
            )
        self.parts.player.init_states()
        self._memories = {explore: self._memory() for explore in (True, False)}
        self._new_episode = True
        self._updates = 0

    def begin_episode(self) -> None:
        """The next action is an episode's first: the memory starts from nothing."""
        self._new_episode = True

    @torch.no_grad()
    def act(self, observation: NDArray[Any], step: int, *, explore: bool) -> NDArray[np.float32]:
        """The action for the newest observation of an episode, [A] in [−1, 1].

        Args:
            observation: Of the agent's observation shape.
            step: Agent steps so far.
            explore: Act uniformly at random at first, then as the actor draws. Otherwise take the
                likeliest of its draws, from random numbers that start anew with each episode.
        """
        check_observation(observation, self.observation_shape)
        player, stream = self.parts.player, "explore" if explore else "evaluate"
        if self._new_episode:
            self._new_episode = False
            player.init_states()
            self._memories[explore] = self._memory()
            if not explore:
                self._streams.restart("evaluate")
        with self._streams.drawing(stream):
            if explore and step < self.settings.explore_steps:
                return (2 * torch.rand(self.action_size) - 1).numpy()
            vars(player).update(self._memories[explore])
            image = torch.from_numpy(observation).to(self.device)[None, None]
            (action,) = player.get_actions(self._scaled(image), greedy=not explore)
        self._memories[explore] = self._memory()
        return np.asarray(action[0, 0].clamp(-1, 1).cpu().numpy(), dtype=np.float32)

    @torch.no_grad()
    def embed(self, observations: Tensor) -> Tensor:
        """The encoder's features of single observations, without memory, [B, D]."""
        check_observations(observations, self.observation_shape)
        encoder = self.parts.networks["world_model"].encoder
        features: Tensor = encoder(self._scaled(observations.to(self.device)[None]))
        return features[0]

    def update(self, replay: Replay, step: int, *, with_metrics: bool = False) -> Metrics:  # noqa: ARG002
        """One update on sequences from the replay buffer; see `learn`."""
        sequences, before = self._sample(replay)
        return self.learn(sequences, before, replay.discount)

    def learn(self, sequences: Sequences, before: Tensor, discount: float) -> Metrics:
        """One step of sheeprl's `train`, after its step of the target critic.

        Args:
            sequences: Of `sequence_length` observations.
            before: Rewards of the steps that led to their first observations, [B].
            discount: γ.

        Returns:
            Losses and metrics as scalar tensors; docs/dreamerv3.md explains each.
        """
        from sheeprl.algos.dreamer_v3.dreamer_v3 import train

        parts, collected = self.parts, _Collected()
        self._move_target()
        parts.config.algo.gamma = discount
        with self._streams.drawing("update"):
            train(
                parts.fabric,
                *parts.networks.values(),
                *parts.optimisers.values(),
                self._data(sequences, before),
                collected,
                parts.config,
                True,
                (self.action_size,),
                parts.moments,
            )
        self._updates += 1
        return collected.metrics | {"batch_reward": sequences.reward.mean()}

    def state_dict(self) -> dict[str, Any]:
        """Everything that training changes: tensors, numbers and names only.

        As in PyTorch, the tensors are not copies: save or copy them before training continues. The
        memory is that of the running training episode.
        """
        return {
            "method": "dreamerv3",
            "networks": {name: module.state_dict() for name, module in self._modules().items()},
            "optimisers": {name: adam.state_dict() for name, adam in self.parts.optimisers.items()},
            "streams": self._streams.state(),
            "memory": self._memories[True],
            "updates": self._updates,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state that `state_dict` returned.

        Raises:
            ValueError: If the state is of another method, or does not fit this agent.
        """
        check_state(state, method="dreamerv3")
        with fitting():
            for name, module in self._modules().items():
                _copy(state["networks"][name], module.state_dict())
            for name, adam in self.parts.optimisers.items():
                adam.load_state_dict(state["optimisers"][name])
            self._streams.restore(state["streams"])
            memory = {name: state["memory"][name].to(self.device) for name in _MEMORY}
            for name, tensor in self._memories[True].items():
                if memory[name].shape != tensor.shape:
                    raise ValueError(f"{name} must be {list(tensor.shape)}")
            self._memories[True] = memory
            self._updates = schema.integer(state["updates"], "updates", 0)
        self._new_episode = False

    def _modules(self) -> dict[str, Any]:
        return self.parts.networks | {"moments": self.parts.moments}

    def _memory(self) -> dict[str, Tensor]:
        return {name: getattr(self.parts.player, name) for name in _MEMORY}

    def _scaled(self, observations: Tensor) -> dict[str, Tensor]:
        """Observations as sheeprl's encoder takes them."""
        images = self.parts.key == "rgb"
        return {self.parts.key: observations / 255 - 0.5 if images else observations}

    def _sample(self, replay: Replay) -> tuple[Sequences, Tensor]:
        """Sequences drawn uniformly, and the rewards of the steps before them."""
        settings, length = self.settings, self.settings.sequence_length - 1
        count = replay.count_sequences(length)
        if not count:
            raise ValueError(
                f"dreamerv3 needs an episode of {length} steps for sequences of {length + 1} "
                "observations, but the replay has none; use a smaller --sequence-length"
            )
        with self._streams.drawing("update"):
            positions = torch.randint(count, (settings.batch_size,)).numpy()
        sequences = replay.gather_sequences(positions, length, shift="sequence")
        return sequences, replay.rewards_before(positions, length)

    def _data(self, sequences: Sequences, before: Tensor) -> dict[str, Tensor]:
        """The sequences as sheeprl stores them, [T, B, ...]: each row with what led to it."""
        action = sequences.action
        reward = torch.cat([before[:, None], sequences.reward], dim=1)
        ended = torch.cat([torch.zeros_like(before)[:, None], 1 - sequences.discount], dim=1)
        rows = {
            self.parts.key: sequences.obs,
            "actions": torch.cat([action, torch.zeros_like(action[:, :1])], dim=1),
            "rewards": reward[..., None],
            "terminated": ended[..., None],
            "is_first": torch.zeros_like(ended)[..., None],  # train sets the first row's
        }
        return {name: rows[name].transpose(0, 1).to(self.device) for name in rows}

    @torch.no_grad()
    def _move_target(self) -> None:
        """The target critic's step, which sheeprl's loop makes before each update."""
        rate = self.parts.config.algo.critic.tau if self._updates else 1.0
        critic, target = (self.parts.networks[name] for name in ("critic", "target_critic"))
        for ours, theirs in zip(target.parameters(), critic.parameters(), strict=True):
            ours.lerp_(theirs, rate)


class _Collected:
    """Takes the metrics that sheeprl's `train` reports."""

    disabled = False

    def __init__(self) -> None:
        self.metrics: Metrics = {}

    def update(self, name: str, value: Tensor) -> None:
        self.metrics[_METRICS[name]] = value


@torch.no_grad()
def _copy(tensors: dict[str, Tensor], into: dict[str, Tensor]) -> None:
    """Copies values in place.

    The player shares the networks' tensors, and Lightning's wrappers of nested modules do not load
    what they save.
    """
    if tensors.keys() != into.keys():
        raise ValueError("its networks have other parameters")
    for name, tensor in into.items():
        if tensors[name].shape != tensor.shape:
            raise ValueError(f"{name} must be {list(tensor.shape)}")
        tensor.copy_(tensors[name])
