"""Wrong types at the doors of the objectives are refused in words."""

import re
from typing import Any

import numpy as np
import pytest
import torch

from revbis.objectives import make_objective

SIZE = 8
GOOD = {
    "z": torch.zeros(SIZE, 4) + 0.5,
    "action": torch.zeros(SIZE, 2),
    "reward": torch.zeros(SIZE),
    "discount": torch.full((SIZE,), 0.9),
    "next_z": torch.zeros(SIZE, 4) + 0.25,
}


@pytest.mark.parametrize("value", [0, -1, 1.5, "x", None, np.nan, 10**23, [3], 1j])
def test_sizes(value: Any) -> None:
    for name in ("simsr-rev", "mico", "dbc", "deepmdp"):
        with pytest.raises(ValueError, match="latent_dim must be"):
            make_objective(name, value, 2)
        with pytest.raises(ValueError, match="action_dim must be"):
            make_objective(name, 4, value)
        with pytest.raises(ValueError, match="hidden must be"):
            make_objective(name, 4, 2, hidden=value)


def test_switches_are_true_or_false() -> None:
    for value in (0, "off", None, np.nan):
        with pytest.raises(ValueError, match="normalisation must be True or False, got"):
            make_objective("mico", 4, 2, normalisation=value)


@pytest.mark.parametrize("name", ["simsr-rev", "mico", "mico-rev-released", "dbc", "deepmdp"])
@pytest.mark.parametrize("key", GOOD)
def test_batches(name: str, key: str) -> None:
    objective = make_objective(name, 4, 2, hidden=8)
    for value in (None, 3, "x", GOOD[key].numpy(), GOOD[key].tolist()):
        kind = type(value).__name__
        with pytest.raises(ValueError, match=f"^{key} must be a tensor, got {kind}$"):
            objective(**GOOD | {key: value})
    with pytest.raises(ValueError, match=f"^{key} must hold .*, got torch.complex64$"):
        objective(**GOOD | {key: GOOD[key].to(torch.complex64)})
    for wrong in (GOOD[key][None], GOOD[key][:-1], torch.tensor(0.0)):
        with pytest.raises(ValueError, match=re.escape("must be [")):
            objective(**GOOD | {key: wrong})
    assert int(objective.steps) == 0


def test_embeddings_are_floats_on_one_device() -> None:
    objective = make_objective("simsr-rev", 4, 2, hidden=8)
    for key in ("z", "next_z"):
        with pytest.raises(ValueError, match=f"{key} must hold floats, got torch.int64"):
            objective(**GOOD | {key: GOOD[key].long()})
    with pytest.raises(ValueError, match="reward is on meta, but z is on cpu"):
        objective(**GOOD | {"reward": GOOD["reward"].to("meta")})
    with pytest.raises(ValueError, match=r"generator must be a torch.Generator or None, got 3"):
        make_objective("dbc", 4, 2, hidden=8)(**GOOD, generator=3)
