"""Batches that an objective refuses, in words."""

import numpy as np
import pytest
import torch

from revbis.objectives import DESIGNS, NonFiniteError, make_objective

SIZE = 8
GOOD = {
    "z": torch.zeros(SIZE, 4) + 0.5,
    "action": torch.zeros(SIZE, 2),
    "reward": torch.zeros(SIZE),
    "discount": torch.full((SIZE,), 0.9),
    "next_z": torch.zeros(SIZE, 4) + 0.25,
}


@pytest.mark.parametrize("name", ["simsr-rev", "mico", "mico-rev-released", "dbc", "deepmdp"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"z": None}, "^z must be a tensor, got NoneType$"),
        ({"reward": np.zeros(SIZE)}, "^reward must be a tensor, got ndarray$"),
        ({"action": torch.zeros(SIZE, 2) * 1j}, "^action must hold real .*, got torch.complex64$"),
        ({"next_z": torch.zeros(SIZE, 4).long()}, "^next_z must hold floats, got torch.int64$"),
        ({"reward": torch.zeros(SIZE).to("meta")}, "reward is on meta, but z is on cpu"),
        ({"z": torch.zeros(SIZE, 5)}, r"z must be \[8, 4\], got \[8, 5\]"),
        ({"z": torch.tensor(0.0)}, r"z must be \[B, 4\], got \[\]"),
        ({"next_z": torch.zeros(SIZE - 1, 4)}, r"next_z must be \[8, 4\]"),
        ({"action": torch.zeros(SIZE)}, r"action must be \[8, 2\], got \[8\]"),
        ({"reward": torch.zeros(1, SIZE)}, r"reward must be \[8\] or \[8, 1\], got \[1, 8\]"),
        ({"discount": torch.tensor(0.9)}, r"discount must be \[8\] or \[8, 1\]"),
        ({key: tensor[:1] for key, tensor in GOOD.items()}, "at least 2 transitions to form pairs"),
    ],
)
def test_batches_that_are_refused(name, change, message) -> None:
    objective = make_objective(name, 4, 2, hidden=8)
    with pytest.raises(ValueError, match=message):
        objective(**GOOD | change)
    assert int(objective.steps) == 0


def test_what_draws_must_be_a_generator() -> None:
    with pytest.raises(ValueError, match=r"generator must be a torch.Generator or None, got 3"):
        make_objective("dbc", 4, 2, hidden=8)(**GOOD, generator=3)


@pytest.mark.parametrize("name", [n for n, d in DESIGNS.items() if d.policy_actions])
def test_a_missing_action_of_the_policy_is_named(name) -> None:
    objective = make_objective(name, 4, 2, hidden=8)
    (needed,) = objective.policy_actions
    with pytest.raises(ValueError, match=rf"needs {needed}=\[B, 2\]: actions drawn from the curre"):
        objective(**GOOD)
    with pytest.raises(ValueError, match=rf"{needed} must be \[8, 2\], got \[8, 3\]"):
        objective(**GOOD, **{needed: torch.zeros(SIZE, 3)})
    with pytest.raises(NonFiniteError, match=f"{needed} has 16 non-finite values"):
        objective(**GOOD, **{needed: torch.full((SIZE, 2), torch.nan)})
