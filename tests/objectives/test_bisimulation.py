"""The objectives of the grid and DBC: losses against loops, gradients, options, metrics."""

import copy
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from revbis.objectives import DESIGNS, OBJECTIVES, NonFiniteError, base, make_objective
from revbis.objectives.base import Transitions, effective_rank, random_partners
from revbis.objectives.bisimulation import RunningScale
from revbis.objectives.dbc import gaussian_nll
from revbis.objectives.registry import accepted_options

B, D, A = 12, 5, 3


def batch(seed: int = 0, column: bool = False) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    reward, discount = torch.rand(B, generator=g), torch.full((B,), 0.97)
    return {
        "z": torch.randn(B, D, generator=g).requires_grad_(),
        "action": torch.rand(B, A, generator=g).requires_grad_(),
        "reward": reward[:, None] if column else reward,
        "discount": discount[:, None] if column else discount,
        "next_z": torch.randn(B, D, generator=g).requires_grad_(),
        "policy_action": torch.rand(B, A, generator=g).requires_grad_(),
        "next_policy_action": torch.rand(B, A, generator=g).requires_grad_(),
    }


def build(name: str, **options):
    torch.manual_seed(0)
    return make_objective(name, D, A, hidden=16, **options)


def run(objective, inputs, seed: int = 0):
    return objective(**inputs, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("pairing", ["all", "permuted"])
@pytest.mark.parametrize("loss", ["huber", "squared"])
@pytest.mark.parametrize("normalisation", [True, False])
def test_each_loss_touches_exactly_its_own_parameters(name, pairing, loss, normalisation) -> None:
    options = {"pairing": pairing, "loss": loss, "normalisation": normalisation}
    objective = build(name, **{k: v for k, v in options.items() if k in accepted_options(name)})
    inputs = batch()
    out = run(objective, inputs)
    own = set(objective.representation_parameters())
    raw = set(objective.coefficient_parameters())
    assert own | raw == set(objective.parameters())
    assert not own & raw

    out.representation_loss.backward(retain_graph=True)
    assert inputs["z"].grad is not None and inputs["z"].grad.abs().sum() > 0
    stopped = ("next_z", "policy_action", "next_policy_action")
    assert all(inputs[tensor].grad is None for tensor in stopped)
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in own if p.dim() > 1)
    assert all(p.grad is None for p in raw)

    for p in (*own, inputs["z"], inputs["action"]):
        p.grad = None
    if out.coefficient_loss is None:
        assert not raw
        return
    out.coefficient_loss.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in raw)
    assert all(p.grad is None for p in (*own, *inputs.values()))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_column_and_flat_rewards_are_the_same(name) -> None:
    objective = build(name)
    flat, column = run(objective, batch()), run(objective, batch(column=True))
    assert torch.equal(flat.representation_loss, column.representation_loss)


def test_names_are_points_on_one_grid() -> None:
    for name, design in DESIGNS.items():
        objective = build(name)
        assert (objective.psi is not None) == design.state_action
        assert (objective.coefficient is not None) == design.adaptive
        if design.means:
            assert replace(design, means=False) == DESIGNS["energy-rev-full-no-c"]
            continue
        assert design.distance == name.split("-")[0]
        assert ("full" in name) == design.tied
        assert ("pairs" in name) == (design.follows == "pairs")
    assert len({*DESIGNS.values()}) == len(DESIGNS) == 19


@pytest.mark.parametrize("name", [n for n in DESIGNS if n != "mico-rev-released"])
@torch.no_grad()
def test_all_pairs_against_a_double_loop(name) -> None:
    design = DESIGNS[name]
    objective = build(name, loss="squared", reward_scale="none").double()
    inputs = {k: v.detach().double() for k, v in batch().items()}
    out = run(objective, inputs)
    x = objective.embed(inputs["z"], inputs["action"])
    states = objective.scale(inputs["z"])
    under_policy = objective.embed(inputs["z"], inputs["policy_action"])
    following = objective.scale(inputs["next_z"])
    if design.follows == "pairs":
        following = objective.embed(inputs["next_z"], inputs["next_policy_action"])
    c = (0.5, 0.5) if design.adaptive else (1.0, 0.97)

    def between(x, i, j):
        return float(objective.distance(x[i : i + 1], x[j : j + 1]))

    losses, ties = [], []
    for i in range(B):
        for j in range(B):
            if i == j and (design.tied or design.follows == "pairs" or name == "energy"):
                continue  # a sample and itself are not independent
            gap = abs(float(inputs["reward"][i] - inputs["reward"][j]))
            gap = gap**2 if design.means else gap
            target = c[0] * gap + c[1] * between(following, i, j)
            losses.append((between(x, i, j) - target) ** 2)
            ties.append((between(states, i, j) - between(under_policy, i, j)) ** 2)
    expected = sum(losses) / len(losses)
    if design.tied:
        assert float(out.tie_loss) == pytest.approx(sum(ties) / len(ties), rel=1e-6)
        expected += sum(ties) / len(ties)
    assert float(out.representation_loss) == pytest.approx(expected, rel=1e-6)


def test_permuted_pairs_are_entries_of_all_pairs() -> None:
    every, some = build("mico-rev"), build("mico-rev", pairing="permuted")
    some.load_state_dict(every.state_dict())
    inputs = batch()
    partner = torch.randperm(B, generator=torch.Generator().manual_seed(4))
    a, b = run(every, inputs), run(some, inputs, seed=4)
    rows = torch.arange(B)
    assert torch.allclose(a.prediction[rows, partner], b.prediction, atol=1e-6)
    assert torch.allclose(a.gap[rows, partner], b.gap)
    assert torch.allclose(a.following[rows, partner], b.following, atol=1e-6)


def test_a_terminated_pair_has_no_next_state_term() -> None:
    inputs = batch()
    inputs["discount"] = torch.tensor([0.0] + [0.97] * (B - 1))
    weight = run(build("simsr"), inputs).next_weight
    assert (weight[0] == 0).all() and (weight[:, 0] == 0).all()
    assert torch.allclose(weight[1:, 1:], torch.tensor(0.97))


PUBLISHED = [n for n, d in DESIGNS.items() if d.adaptive and not d.released and not d.independent]
COMPLETE = [name for name, design in DESIGNS.items() if design.independent]


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("pairing", ["all", "permuted"])
@torch.no_grad()
def test_with_a_coefficient_nothing_follows_a_termination(name, pairing) -> None:
    """Both losses against a loop."""
    inputs = batch()
    inputs["discount"] = torch.tensor([0.0, 0.97, 0.0] + [0.97] * (B - 3))
    objective = build(name, pairing=pairing, loss="squared", reward_scale="none").double()
    inputs = {k: v.detach().double() for k, v in inputs.items()}
    objective.coefficient.raw_c.copy_(torch.tensor([0.0, 1.0]))
    out = run(objective, inputs)
    c = float(torch.sigmoid(torch.tensor(1.0, dtype=torch.float64)))
    embedding = objective.scale(inputs["next_z"])
    partner = random_partners(inputs["z"], torch.Generator().manual_seed(0))
    pairs = [(i, j) for i in range(B) for j in range(B)]
    if pairing == "permuted":
        pairs = list(enumerate(partner.tolist()))
    losses = []
    for (i, j), predicted in zip(pairs, out.prediction.flatten().tolist(), strict=True):
        gap = abs(float(inputs["reward"][i] - inputs["reward"][j]))
        next_distance = float(objective.distance(embedding[[i]], embedding[[j]]))
        ended = {0, 2} & {i, j}
        wanted = (1 - c) * gap + (0 if ended else c * next_distance)
        losses.append((predicted - wanted) ** 2)
    expected = sum(losses) / len(losses)
    assert float(out.coefficient_loss) == pytest.approx(expected, rel=1e-6)
    assert float(out.representation_loss) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", PUBLISHED)
def test_terminations_leave_the_discount_as_coefficient_a_scaled_metric(name) -> None:
    """(1−γ, γ) gives 1 − γ times the target of (1, γ), where it has the same next distances."""
    inputs = batch()
    inputs["discount"] = torch.tensor([0.0] + [0.75] * (B - 1))
    out = run(build(name, coefficient="discount", reward_scale="none"), inputs)
    assert torch.allclose(out.reward_weight, torch.tensor(0.25))
    assert torch.equal(out.next_weight[0], torch.zeros(B))
    inputs["discount"] = torch.zeros(B)
    out = run(build(name, coefficient="discount", reward_scale="none"), inputs)
    assert torch.equal(out.reward_weight, torch.ones(B, B))  # no discount to be seen


def ending(row: int = 0) -> dict[str, torch.Tensor]:
    """A batch one of whose transitions has terminated."""
    inputs = batch()
    inputs["discount"][row] = 0
    return inputs


@pytest.mark.parametrize("name", COMPLETE)
def test_the_absorbing_state_joins_at_the_first_termination(name) -> None:
    """And stays; until then numbers are those of before, whatever lies in its place."""
    objective, other = build(name), build(name)
    other.absorbing.z += 5
    for seed in range(2):
        out, same = run(objective, batch(seed)), run(other, batch(seed))
        assert torch.equal(out.loss, same.loss) and out.prediction.shape == (B, B)
    for inputs in (ending(), batch(2)):
        out = run(objective, inputs)
        assert out.prediction.shape == out.gap.shape == (B + 1, B + 1)
        assert out.embedding.shape == (B + 1, D)
        assert float(out.following[-1, -1]) == 0
        assert not torch.equal(out.loss, run(other, inputs).loss)
        scale = objective.status().get("reward_scale", 1.0)
        power = 2 if DESIGNS[name].means else 1
        assert torch.allclose(scale * out.gap[-1, :B], inputs["reward"] ** power)


@pytest.mark.parametrize("name", COMPLETE)
@pytest.mark.parametrize("pairing", ["all", "permuted"])
def test_with_the_absorbing_state_gradients_reach_the_same(name, pairing) -> None:
    objective, inputs = build(name, pairing=pairing), ending(3)
    run(objective, inputs).loss.backward()
    assert all(p.grad.abs().sum() > 0 for p in objective.parameters() if p.dim() > 1)
    assert inputs["z"].grad.abs().sum() > 0 and inputs["next_z"].grad is None
    assert not objective.absorbing.z.requires_grad


@pytest.mark.parametrize("name", COMPLETE)
def test_where_one_has_ended_the_discount_is_the_others(name) -> None:
    """The weights of what follows: γ, also beside an end; nothing follows two ends."""
    inputs = ending(1)
    options = {"coefficient": "discount"} if DESIGNS[name].adaptive else {}
    out = run(build(name, reward_scale="none", **options), inputs)
    wanted = torch.full((B + 1, B + 1), 0.97)
    for i in (1, B):
        wanted[i, [1, B]] = 0
    assert torch.allclose(out.next_weight, wanted)
    assert torch.allclose(out.reward_weight, torch.tensor(0.03 if options else 1.0))
    assert (out.following[wanted == 0] == 0).all() and (out.following[1, 2:B] > 0).all()


@pytest.mark.parametrize("looked_at", [("cpu",), ()], ids=["cpu", "gpu"])
@pytest.mark.parametrize("stop", [2, 99, 101])
def test_the_absorbing_state_survives_a_resume(looked_at, stop, monkeypatch) -> None:
    """On a GPU the row joins at the next hundredth batch, also when stopped in between."""
    monkeypatch.setattr(base, "_LOOKED_AT", looked_at)
    whole, resumed = build("simsr-rev-full"), build("simsr-rev-full")
    rows, state = [], {}
    for step in range(103):
        if step == stop:
            resumed = build("simsr-rev-full")
            resumed.load_state_dict(state)
        inputs = ending() if step == 1 else batch(step)
        outs = [run(objective, inputs) for objective in (whole, resumed)]
        state = resumed.state_dict()
        assert torch.equal(*(out.loss for out in outs))
        rows.append(len(outs[0].embedding))
    joined = 1 if looked_at else 100
    assert rows == [B] * joined + [B + 1] * (103 - joined)


def test_a_compiler_leaves_the_look_at_terminations_out(monkeypatch) -> None:
    """It counts batches in Python, for each of which the compiler would start again."""
    compiled = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda module, **_: compiled.append(module))
    objective = build("simsr-rev-full")
    objective.compile()
    assert compiled == [objective] and objective.absorbing.joins._torchdynamo_disable
    assert len(run(objective, ending()).embedding) == B + 1


def test_a_state_from_before_there_was_an_absorbing_one_loads() -> None:
    state = build("simsr-rev-full").state_dict()
    assert int(state.pop("absorbing.since")) == -1
    objective = build("simsr-rev-full")
    run(objective, ending())
    objective.load_state_dict(state)
    assert len(run(objective, batch()).embedding) == B


def test_the_scale_knows_the_gap_to_the_end() -> None:
    """With rewards of 1 the gap of pairs is 0; to the end it is 1, half of which counts."""
    objective, inputs = build("simsr-rev-full"), ending()
    inputs["reward"] = torch.ones(B)
    run(objective, inputs)
    assert objective.status()["reward_scale"] == pytest.approx(B / (B + 1))  # 2 · ½ · mean |r|


def released_losses(objective, inputs, partner):
    """What the released code computes: gaps of shape [B, 1] beside distances of shape [B]."""
    x = objective.embed(inputs["z"], inputs["action"])
    distances = objective.distance(x, x[partner].detach(), rowwise=True)
    next_z = objective.scale(inputs["next_z"].detach())
    following = objective.distance(next_z, next_z[partner], rowwise=True)
    reward = inputs["reward"].reshape(B, 1)
    gaps = torch.nn.functional.smooth_l1_loss(reward, reward[partner], reduction="none")
    weights = torch.softmax(objective.coefficient.raw_c, dim=0)
    wanted = weights[0] * gaps + weights[1] * following
    assert wanted.shape == (B, B)  # the broadcast
    distances = distances.expand(B, B)
    return (
        torch.nn.functional.mse_loss(distances, wanted.detach()),
        torch.nn.functional.mse_loss(distances.detach(), wanted),
    )


@pytest.mark.parametrize("largest", [1.0, 5.0])
def test_the_released_variant_is_the_released_broadcast(largest) -> None:
    """Every gradient agrees with a transcription, raw_c's included."""
    objective = build("mico-rev-released").double()
    inputs = {k: v.detach().double() for k, v in batch().items()}
    inputs["z"].requires_grad_()
    inputs["reward"] = inputs["reward"] * largest
    partner = torch.randperm(B, generator=torch.Generator().manual_seed(0))
    optimiser = torch.optim.Adam(objective.parameters(), lr=0.01)
    for _ in range(5):
        out = run(objective, inputs)
        ours, theirs = out.losses.values(), released_losses(objective, inputs, partner)
        own = [inputs["z"], *objective.representation_parameters()]
        raw = list(objective.coefficient_parameters())
        for mine, released, parameters in zip(ours, theirs, (own, raw), strict=True):
            got = torch.autograd.grad(mine, parameters, retain_graph=True)
            expected = torch.autograd.grad(released, parameters, retain_graph=True)
            assert all(map(torch.allclose, got, expected))
            assert got[0].abs().sum() > 0
        optimiser.zero_grad()
        sum(ours).backward()
        optimiser.step()


@pytest.mark.parametrize("name", [n for n, d in DESIGNS.items() if d.tied])
@pytest.mark.parametrize("pairing", ["all", "permuted"])
def test_the_tie_trains_phi_alone(name, pairing) -> None:
    """Its targets are ψ's distances: no gradient through them, and none of it reaches ψ."""
    objective, inputs = build(name, pairing=pairing), batch()
    partner = torch.arange(1, B + 1) % B if pairing == "permuted" else None
    transitions = {k: inputs[k] for k in ("z", "action", "reward", "discount", "next_z")}
    tie, targets = objective._tie(
        Transitions(**transitions, policy_action=inputs["action"]), partner
    )
    tie.backward()
    assert inputs["z"].grad.abs().sum() > 0
    assert not targets.requires_grad
    assert all(p.grad is None for p in objective.parameters())
    z = inputs["z"].detach().requires_grad_()
    x = objective.scale(z)
    y = x if partner is None else x[partner]
    distances = objective.distance(x, y, rowwise=partner is not None)
    beside = slice(None) if partner is not None else ~torch.eye(B, dtype=torch.bool)
    loss = torch.nn.functional.huber_loss(distances[beside], targets[beside])
    assert torch.allclose(torch.autograd.grad(loss, z)[0], inputs["z"].grad, atol=1e-7)


def test_partners_are_others_where_pairs_are_independent() -> None:
    g = torch.Generator().manual_seed(0)
    for size in (2, 3, 17):
        for _ in range(20):
            partner = random_partners(torch.zeros(size, 1), g, others=True)
            assert sorted(partner.tolist()) == list(range(size))
            assert (partner != torch.arange(size)).all()


@pytest.mark.parametrize("name", ["simsr-rev-full", "energy-rev-full-no-c", "mico"])
def test_the_running_scale_takes_the_rewards_unit_away(name) -> None:
    gradients, scales = [], []
    for factor in (1.0, 100.0):
        objective = build(name, reward_scale="running")
        for seed in range(30):
            inputs = batch(seed)
            inputs["reward"] = factor * inputs["reward"]
            out = run(objective, inputs)
        gradients.append(torch.autograd.grad(out.representation_loss, inputs["z"])[0])
        scales.append(objective.status()["reward_scale"])
    assert torch.allclose(*gradients, rtol=1e-4, atol=1e-7)
    assert scales[1] == pytest.approx(100 * scales[0], rel=1e-5)
    weights_add_up = DESIGNS[name].adaptive
    expected = 2 * out.gap.mean() * scales[1] / scales[1]
    assert float(expected) == pytest.approx(1 if weights_add_up else 0.03, rel=0.2)


def test_the_scale_waits_for_the_first_reward() -> None:
    scale = RunningScale()
    assert torch.equal(scale(torch.zeros(4), None), torch.zeros(4))
    assert float(scale.value) == 1 and int(scale.batches) == 0
    assert torch.equal(scale(torch.tensor([0.0, 3.0]), None), torch.tensor([0.0, 1.0]))
    scale(torch.zeros(2), None)
    assert float(scale.value) == 1.5 and int(scale.batches) == 2


@pytest.mark.parametrize(
    ("coefficient", "weights"), [("discount", (0.03, 0.97)), (0.9, (0.1, 0.9)), (0.5, (0.5, 0.5))]
)
@pytest.mark.parametrize("name", [n for n, d in DESIGNS.items() if d.adaptive])
def test_c_may_be_the_discount_or_a_number(name, coefficient, weights) -> None:
    objective = build(name, coefficient=coefficient)
    out = run(objective, batch())
    assert out.coefficient_loss is None and not list(objective.coefficient_parameters())
    assert float(out.reward_weight.mean()) == pytest.approx(weights[0], abs=1e-6)
    assert float(out.next_weight.mean()) == pytest.approx(weights[1], abs=1e-6)
    known = {} if coefficient == "discount" else {"c": coefficient}
    assert {k: v for k, v in objective.status().items() if k == "c"} == known


def test_dbc_likelihood_is_that_of_pytorch() -> None:
    generator = torch.Generator().manual_seed(0)
    mean, log, x = torch.randn(3, 9, 4, generator=generator)
    deviation = (5 * log - 5).exp()
    assert (deviation.square() < 1e-6).any()
    results = []
    for nll in (gaussian_nll, lambda m, d, y: functional.gaussian_nll_loss(m, y, d.square())):
        inputs = [t.clone().requires_grad_() for t in (mean, deviation, x)]
        loss = nll(*inputs)
        results.append([loss, *torch.autograd.grad(loss, inputs)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_dbc_target_and_likelihood_by_hand() -> None:
    objective = build("dbc", pairing="all")
    inputs = batch()
    out = run(objective, inputs)
    read = torch.cat([inputs["z"], inputs["action"]], dim=1)
    mean, deviation = objective.dynamics(read)
    i, j = 3, 8
    w2 = ((mean[i] - mean[j]).square().sum() + (deviation[i] - deviation[j]).square().sum()).sqrt()
    assert torch.allclose(out.following[i, j], w2, atol=1e-5)
    assert torch.allclose(
        out.prediction[i, j], (inputs["z"][i] - inputs["z"][j]).abs().sum(), atol=1e-5
    )
    normal = torch.distributions.Normal(mean, deviation)
    nll = -normal.log_prob(inputs["next_z"]).mean() - 0.5 * torch.log(torch.tensor(2 * torch.pi))
    bisimulation = (out.prediction - out.gap - 0.97 * out.following).square().mean()
    assert torch.allclose(out.representation_loss, nll + bisimulation, rtol=1e-4)


def test_coefficient_starts_at_one_half_and_moves_towards_the_smaller_loss() -> None:
    objective = build("simsr-rev")
    optimiser = torch.optim.SGD(objective.coefficient_parameters(), lr=1.0)
    inputs = batch()
    assert float(run(objective, inputs).metrics["c"]) == 0.5
    losses = []
    for _ in range(50):
        out = run(objective, inputs)
        losses.append(float(out.coefficient_loss.detach()))
        optimiser.zero_grad()
        out.coefficient_loss.backward()
        optimiser.step()
    assert losses[-1] < losses[0]
    assert 0 < float(run(objective, inputs).metrics["c"]) < 1


@pytest.mark.parametrize("name", [*DESIGNS, "dbc"])
def test_metrics_are_detached_finite_scalars(name) -> None:
    metrics = run(build(name), batch()).metrics
    expected = {"c", "reward_share", "next_share", "embedding_norm", "effective_rank"}
    expected |= {"distance_q05", "distance_q50", "distance_q95", "near_zero_fraction"}
    assert expected | {"self_distance", "representation_loss"} <= set(metrics)
    for value in metrics.values():
        assert value.shape == () and not value.requires_grad and torch.isfinite(value)
    assert float(metrics["reward_share"] + metrics["next_share"]) == pytest.approx(1, abs=1e-5)


def test_effective_rank_of_wide_and_of_broken_embeddings() -> None:
    x = torch.randn(40, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    turned = torch.linalg.qr(torch.randn(90, 8, dtype=torch.float64)).Q.T
    assert float(effective_rank(x @ turned)) == pytest.approx(float(effective_rank(x)))
    x[3, 2] = torch.nan
    assert effective_rank(x).isnan()


def test_effective_rank_tells_collapse() -> None:
    inputs = batch()
    full = run(build("simsr"), inputs).metrics["effective_rank"]
    inputs["z"] = torch.outer(torch.linspace(1, 2, B), torch.ones(D)).requires_grad_()
    flat = run(build("simsr", normalisation=False), inputs).metrics["effective_rank"]
    assert full > 3 > 1.01 > flat


@pytest.mark.parametrize("name", ["simsr", "mico-rev", "dbc", "zp", "deepmdp"])
@pytest.mark.parametrize("tensor", ["z", "action", "reward", "discount", "next_z"])
def test_non_finite_inputs_are_named_with_count_and_step(name, tensor) -> None:
    objective = build(name)
    run(objective, batch())
    inputs = {k: v.detach().clone() for k, v in batch().items()}
    inputs[tensor].view(-1)[:2] = torch.tensor([float("nan"), float("inf")])
    with pytest.raises(NonFiniteError, match=f"{tensor} has 2 non-finite values .* step 1") as info:
        run(objective, inputs)
    assert (info.value.tensor, info.value.count, info.value.step) == (tensor, 2, 1)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_refused_batch_is_not_remembered(name) -> None:
    objective = build(name)
    run(objective, batch())
    before = copy.deepcopy(objective.state_dict())
    for tensor in ("reward", "discount"):
        inputs = {k: v.detach().clone() for k, v in batch().items()}
        inputs[tensor][1] = float("nan")
        with pytest.raises(NonFiniteError):
            run(objective, inputs)
    for key, value in objective.state_dict().items():
        assert torch.equal(value, before[key]), key


def test_a_non_finite_loss_is_named() -> None:
    objective = build("mico-rev")
    with torch.no_grad():
        objective.psi.layers[0].weight[0, 0] = float("nan")
    with pytest.raises(NonFiniteError, match="representation_loss has 1 non-finite"):
        run(objective, batch())


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("simrs", {}, "did you mean 'simsr'"),
        ("simsr", {"beta": 0.1}, "an option of simsr must be one of"),
        ("mico", {"hiden": 3}, "did you mean 'hidden'"),
        ("mico", {"loss": "l2"}, "loss must be one of huber, squared"),
        ("mico", {"hidden": 0}, "hidden must be at least 1"),
        ("mico", {"beta": 0}, "beta must be above 0"),
        ("mico", {"normalisation": 0}, "normalisation must be True or False, got 0"),
        ("energy", {"normalisation": True}, "an option of energy must be one of"),
        ("zp", {"pairing": "all"}, "an option of zp must be one of loss, normal"),
        ("zp", {"discrete": 2}, "discrete must be True or False, got 2"),
        ("simsr-rev", {"coefficient": 1.0}, r"learned, discount or a number in \(0, 1\), got 1.0"),
        ("simsr-rev", {"coefficient": True}, "coefficient must be"),
        ("simsr-rev", {"coefficient": "gamma"}, "coefficient must be .* got 'gamma'"),
    ],
)
def test_unknown_names_and_options_are_refused(name, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        make_objective(name, D, A, **options)


def test_sizes_below_one_are_refused() -> None:
    for name, sizes in (("latent_dim", (0, A)), ("action_dim", (D, 0))):
        with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
            make_objective("mico", *sizes)
