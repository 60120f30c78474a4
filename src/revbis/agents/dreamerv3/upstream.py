"""The parts of sheeprl's Dreamer-v3, built for this package's observations and settings."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from revbis.system.extras import require

if TYPE_CHECKING:
    import torch

    from revbis.agents.dreamerv3.settings import DreamerV3Settings
    from revbis.agents.settings import Shape

SUBJECT, EXTRA = "dreamerv3", "dreamer"
Tree = dict[str, Any]


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


def build(
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
        whole = compose("config", [f"{name}={value}" for name, value in _values(shape, settings)])
    parts = {
        name: OmegaConf.to_container(whole[name], resolve=True) for name in ("algo", "distribution")
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
