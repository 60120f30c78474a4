"""What every objective does with a batch: the calls it takes, and those it refuses in words."""

import copy
import logging
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from revbis.objectives import DESIGNS, OBJECTIVES, NonFiniteError, base, make_objective

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
        ({"action": torch.zeros(SIZE)}, r"action must be \[8, 2\], got \[8\]$"),
        ({"action": torch.zeros(SIZE).long()}, r"\[8, 2\], got \[8\]; to pass int.*discrete=True"),
        ({"reward": torch.zeros(1, SIZE)}, r"reward must be \[8\] or \[8, 1\], got \[1, 8\]"),
        ({"discount": torch.tensor(0.9)}, r"discount must be \[8\] or \[8, 1\]"),
        ({"discount": torch.ones(SIZE).bool()}, r"numbers in \[0, 1\], got torch.bool; pass γ"),
        ({"discount": torch.full((SIZE, 1), 99)}, r"numbers in \[0, 1\], got 99; pass γ, and 0"),
        ({"discount": torch.arange(SIZE) - 1.0}, r"numbers in \[0, 1\], got -1; pass γ"),
        (
            {"policy": torch.zeros(SIZE, 2)},
            "must be a function .*, got Tensor; pass actions",
        ),
        ({"states": torch.zeros(SIZE, 2)}, r"must be a pair, \(states, next_states\).*got Tensor"),
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
    with pytest.raises(ValueError, match=rf"pass policy=, which draws them, or {needed}=\[B, 2\]"):
        objective(**GOOD)
    with pytest.raises(ValueError, match="what policy returns must be a tensor, got Normal"):
        objective(**GOOD, policy=lambda z: torch.distributions.Normal(z, 1.0))
    with pytest.raises(ValueError, match=r"what policy returns must be \[8, 2\], got \[8, 4\]"):
        objective(**GOOD, policy=lambda z: z)
    with pytest.raises(ValueError, match=rf"{needed} must be \[8, 2\], got \[8, 3\]"):
        objective(**GOOD, **{needed: torch.zeros(SIZE, 3)})
    with pytest.raises(NonFiniteError, match=f"{needed} has 16 non-finite values"):
        objective(**GOOD, **{needed: torch.full((SIZE, 2), torch.nan)})


README = (Path(__file__).parents[2] / "README.md").read_text()
SNIPPET = re.search(
    r"^## The objective in your agent\n.*?^```python\n(.*?)^```", README, flags=re.M | re.S
)[1]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_pattern_of_the_readme_serves_every_method(name: str) -> None:
    """One optimiser, one backward; the gradients are those of two separate ones."""
    assert SNIPPET.count('"laws"') == 1
    torch.manual_seed(0)
    here: dict = {}
    exec(SNIPPET.replace('"laws"', repr(name)), here)
    encoder, actor, objective = here["encoder"], here["actor"], here["objective"]
    trained = {*encoder.parameters(), *objective.parameters()}
    in_optimiser = here["optimiser"].param_groups[0]["params"]
    assert set(in_optimiser) == trained and len(in_optimiser) == len(trained)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in trained)
    assert all(p.grad.any() for p in trained if p.ndim > 1)
    assert all(p.grad is None for p in actor.parameters())

    names = ("s", "action", "reward", "discount", "next_s")
    s, action, reward, discount, next_s = (here[each] for each in names)
    next_z = encoder(next_s).detach().requires_grad_()
    drawn = {each: actor(s).detach() for each in objective.policy_actions}
    state, gradients = copy.deepcopy(objective.state_dict()), []
    for together in (True, False):
        objective.load_state_dict(state)
        torch.manual_seed(1)  # the partners of permuted pairs
        out = objective(encoder(s), action, reward, discount, next_z, **drawn)
        for parameter in trained:
            parameter.grad = None
        for loss in [out.loss] if together else out.losses.values():
            loss.backward()
        gradients.append([parameter.grad.clone() for parameter in in_optimiser])
    assert all(map(torch.equal, *gradients))
    assert next_z.grad is None


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_policy_is_asked_only_where_it_is_needed(name: str) -> None:
    objective = make_objective(name, 4, 2, hidden=8)
    asked = []

    def policy(states):
        asked.append((states, torch.is_grad_enabled()))
        return torch.ones(SIZE, 2, requires_grad=True)

    s, next_s = {"pixels": 1}, {"pixels": 2}  # whatever the policy takes
    objective(**GOOD, policy=policy, states=(s, next_s))
    at = {"policy_action": s, "next_policy_action": next_s}
    assert asked == [(at[each], False) for each in objective.policy_actions]
    asked.clear()
    given = {each: torch.ones(SIZE, 2) for each in objective.policy_actions}
    objective(**GOOD, **given, policy=policy)
    assert asked == []  # actions that are given are not drawn
    objective(**GOOD, policy=policy)  # which is asked for actions at embeddings then
    at = {"policy_action": GOOD["z"], "next_policy_action": GOOD["next_z"]}
    for each, (states, _) in zip(given, asked, strict=True):
        assert torch.equal(states, at[each])


@pytest.mark.parametrize("name", OBJECTIVES)
def test_integer_actions_are_one_hot_vectors(name: str) -> None:
    integers = torch.arange(SIZE) % 3
    one_hot = torch.eye(3)[integers]
    losses, embeddings = [], []
    for action in (integers, integers[:, None].int(), one_hot, None):
        torch.manual_seed(0)
        objective = make_objective(name, 4, 3, hidden=8, discrete=action is not None)
        given = one_hot if action is None else action
        out = objective(**GOOD | {"action": given}, policy=lambda _, given=given: given.flip(0))
        losses.append(out.loss)
        embeddings.append(objective.embed(GOOD["z"], given))
    assert all(torch.equal(loss, losses[-1]) for loss in losses)
    assert all(torch.equal(each, embeddings[-1]) for each in embeddings)
    objective = make_objective(name, 4, 3, hidden=8, discrete=True)
    for wrong in (-1, 3):
        message = f"action must hold integers from 0 to 2, as action_dim is 3; got {wrong}"
        with pytest.raises(ValueError, match=message):
            objective(**GOOD | {"action": integers.where(integers > 0, wrong)})
    with pytest.raises(ValueError, match=r"must be \[8, 3\] or integers, \[8\], got \[8, 2\]"):
        objective(**GOOD)


@pytest.mark.parametrize("name", ["mico", "simsr-rev-full", "dbc", "zp"])
def test_discrete_actions_are_integers_or_probabilities(name: str, monkeypatch) -> None:
    objective = make_objective(name, 4, 3, hidden=8, discrete=True)
    likely = torch.softmax(torch.arange(3.0 * SIZE).view(SIZE, 3).cos(), dim=1)
    ending = GOOD | {"discount": torch.tensor([0.0] + [0.9] * (SIZE - 1))}
    for action in (likely, likely.bfloat16(), torch.eye(3)[torch.arange(SIZE) % 3].long()):
        objective(**ending | {"action": action}, policy=lambda _, action=action: action)
    wanted = "action must hold, as discrete=True, integers from 0 to 2, one-hot vectors or prob"
    for wrong, told in ((2 * likely, "a row whose sum is 2"), (likely - 0.5, "-0.37")):
        with pytest.raises(ValueError, match=f"{wanted}.*got {told}.*leave discrete out"):
            objective(**GOOD | {"action": wrong}, policy=lambda _: likely)
    with pytest.raises(ValueError, match=r"got \[8\] of torch.float32; pass action.long\(\)"):
        objective(**GOOD | {"action": torch.zeros(SIZE)})
    if objective.policy_actions:
        with pytest.raises(ValueError, match="what policy returns must hold, as discrete=True"):
            objective(**GOOD | {"action": likely}, policy=lambda _: 2 * likely)
    monkeypatch.setattr(base, "_LOOKED_AT", ())  # as on a GPU
    objective(**GOOD | {"action": 2 * likely}, policy=lambda _: likely)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("tensor", ["z", "next_z", "reward", "discount", "action"])
def test_types_of_numbers_may_be_mixed(name: str, dtype: torch.dtype, tensor: str) -> None:
    objective = make_objective(name, 4, 2, hidden=8)
    generator = torch.Generator().manual_seed(0)
    batch = {key: torch.rand(value.shape, generator=generator) for key, value in GOOD.items()}
    batch[tensor] = batch[tensor].to(dtype)
    batch["z"].requires_grad_()
    out = objective(**batch, policy=lambda _: batch["action"])
    out.loss.backward()
    assert batch["z"].grad.dtype == batch["z"].dtype and batch["z"].grad.isfinite().all()
    assert all(p.grad is not None for p in objective.parameters())


def with_rewards(objective, reward: torch.Tensor, times: int) -> None:
    for _ in range(times):
        objective(**GOOD | {"reward": reward}, policy=lambda z: z[:, :2])


@pytest.mark.parametrize("name", OBJECTIVES)
def test_rewards_that_never_differ_are_told_once(name: str, caplog, monkeypatch) -> None:
    constant, other = torch.ones(SIZE), torch.arange(SIZE).float()
    with caplog.at_level(logging.WARNING, logger="revbis"):
        with_rewards(make_objective(name, 4, 2, hidden=8), constant, 99)
        seen = make_objective(name, 4, 2, hidden=8)
        with_rewards(seen, other, 1)
        with_rewards(seen, constant, 100)
        monkeypatch.setattr(base, "_LOOKED_AT", ())  # as on a GPU
        with_rewards(make_objective(name, 4, 2, hidden=8), constant, 100)
        monkeypatch.undo()
        assert caplog.messages == []
        with_rewards(make_objective(name, 4, 2, hidden=8), constant, 250)
    assert len(caplog.messages) == (name not in ("zp", "deepmdp"))
    assert all(text.startswith("in each of the first 100 batches") for text in caplog.messages)
