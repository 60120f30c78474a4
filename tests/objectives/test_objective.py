import pytest
import torch

from revbis.objectives import DESIGNS, OBJECTIVES, NonFiniteError, make_objective

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
    objective = build(name, pairing=pairing, loss=loss, normalisation=normalisation)
    inputs = batch()
    out = run(objective, inputs)
    own = set(objective.representation_parameters())
    raw = set(objective.coefficient_parameters())
    assert own | raw == set(objective.parameters())
    assert not own & raw

    out.representation_loss.backward(retain_graph=True)
    assert inputs["z"].grad is not None and inputs["z"].grad.abs().sum() > 0
    assert inputs["next_z"].grad is None
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
        assert design.distance == name.split("-")[0]
    assert len({*DESIGNS.values()}) == len(DESIGNS) == 9


@pytest.mark.parametrize("name", ["mico", "simsr", "mico-rev", "simsr-rev-no-c"])
@torch.no_grad()
def test_all_pairs_against_a_double_loop(name) -> None:
    objective = build(name, loss="squared").double()
    inputs = {k: v.detach().double() for k, v in batch().items()}
    out = run(objective, inputs)
    x = objective.embed(inputs["z"], inputs["action"])
    following = inputs["next_z"] / inputs["next_z"].norm(dim=1, keepdim=True)
    c = (0.5, 0.5) if DESIGNS[name].adaptive else (1.0, 0.97)
    total = 0.0
    for i in range(B):
        for j in range(B):
            prediction = objective.distance(x[i : i + 1], x[j : j + 1])[0, 0]
            next_distance = objective.distance(following[i : i + 1], following[j : j + 1])[0, 0]
            gap = abs(inputs["reward"][i] - inputs["reward"][j])
            total += float((prediction - c[0] * gap - c[1] * next_distance) ** 2)
    assert float(out.representation_loss) == pytest.approx(total / B**2, abs=1e-7)


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


def test_the_released_variant_sees_only_the_mean_reward_gap() -> None:
    """Its targets differ by next-state distances alone, and one member carries no gradient."""
    objective = build("mico-rev-released")
    inputs = batch()
    out = run(objective, inputs)
    partner = torch.randperm(B, generator=torch.Generator().manual_seed(0))
    gaps = (inputs["reward"] - inputs["reward"][partner]).abs()
    assert out.gap.shape == ()
    assert float(out.gap) == pytest.approx(float((gaps**2 / 2).mean()))  # gaps below 1: smooth L1
    assert objective.regression.__class__.__name__ == "MSELoss"
    first = objective.embed(inputs["z"], inputs["action"])
    second = first[partner].detach()
    targets = 0.5 * out.gap + 0.5 * out.following
    loss = ((objective.distance(first, second, rowwise=True) - targets) ** 2).mean()
    (expected,) = torch.autograd.grad(loss, inputs["z"])
    (got,) = torch.autograd.grad(out.representation_loss, inputs["z"])
    assert torch.allclose(got, expected, atol=1e-7)


def test_dbc_target_and_likelihood_by_hand() -> None:
    objective = build("dbc", pairing="all")
    inputs = batch()
    out = run(objective, inputs)
    mean, deviation = objective.dynamics(inputs["z"], inputs["action"])
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


@pytest.mark.parametrize("name", OBJECTIVES)
def test_metrics_are_detached_finite_scalars(name) -> None:
    metrics = run(build(name), batch()).metrics
    expected = {"c", "reward_share", "next_share", "embedding_norm", "effective_rank"}
    expected |= {"distance_q05", "distance_q50", "distance_q95", "near_zero_fraction"}
    assert expected | {"self_distance", "representation_loss"} <= set(metrics)
    for value in metrics.values():
        assert value.shape == () and not value.requires_grad and torch.isfinite(value)
    assert float(metrics["reward_share"] + metrics["next_share"]) == pytest.approx(1, abs=1e-5)


def test_effective_rank_tells_collapse() -> None:
    inputs = batch()
    full = run(build("simsr"), inputs).metrics["effective_rank"]
    inputs["z"] = torch.outer(torch.linspace(1, 2, B), torch.ones(D)).requires_grad_()
    flat = run(build("simsr", normalisation=False), inputs).metrics["effective_rank"]
    assert full > 3 > 1.01 > flat


@pytest.mark.parametrize("name", ["simsr", "mico-rev", "dbc"])
@pytest.mark.parametrize("tensor", ["z", "action", "reward", "discount", "next_z"])
def test_non_finite_inputs_are_named_with_count_and_step(name, tensor) -> None:
    objective = build(name)
    run(objective, batch())
    inputs = {k: v.detach().clone() for k, v in batch().items()}
    inputs[tensor].view(-1)[:2] = torch.tensor([float("nan"), float("inf")])
    with pytest.raises(NonFiniteError, match=f"{tensor} has 2 non-finite values .* step 1") as info:
        run(objective, inputs)
    assert (info.value.tensor, info.value.count, info.value.step) == (tensor, 2, 1)


def test_a_non_finite_loss_is_named() -> None:
    objective = build("mico-rev")
    with torch.no_grad():
        objective.psi.layers[0].weight[0, 0] = float("nan")
    with pytest.raises(NonFiniteError, match="representation_loss has 1 non-finite"):
        run(objective, batch())


@pytest.mark.parametrize(
    ("tensor", "shape", "message"),
    [
        ("z", (B, D + 1), r"z must be \[12, 5\], got \[12, 6\]"),
        ("action", (B, A + 1), r"action must be \[12, 3\]"),
        ("action", (B,), r"action must be \[12, 3\], got \[12\]"),
        ("next_z", (B - 1, D), r"next_z must be \[12, 5\]"),
        ("reward", (1, B), r"reward must be \[12\] or \[12, 1\], got \[1, 12\]"),
        ("reward", (B, 2), "reward must be"),
        ("discount", (B + 1,), r"discount must be \[12\] or \[12, 1\]"),
        ("discount", (), "discount must be"),
    ],
)
def test_wrong_shapes_are_refused(tensor, shape, message) -> None:
    inputs = batch()
    inputs[tensor] = torch.zeros(shape)
    with pytest.raises(ValueError, match=message):
        run(build("mico-rev"), inputs)


def test_one_transition_makes_no_pair() -> None:
    inputs = {k: v[:1] for k, v in batch().items()}
    with pytest.raises(ValueError, match="at least 2"):
        run(build("simsr"), inputs)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("simrs", {}, "did you mean 'simsr'"),
        ("simsr", {"beta": 0.1}, "an option of simsr must be one of"),
        ("mico", {"hiden": 3}, "did you mean 'hidden'"),
        ("mico", {"loss": "l2"}, "loss must be one of huber, squared"),
        ("mico", {"pairing": "some"}, "pairing must be one of"),
        ("mico", {"hidden": 0}, "hidden must be"),
        ("dbc", {"beta": 1.0}, "an option of dbc"),
    ],
)
def test_unknown_names_and_options_are_refused(name, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        make_objective(name, D, A, **options)
    with pytest.raises(ValueError, match="latent_dim must be at least 1"):
        make_objective("mico", 0, A)


def test_state_survives_a_round_trip(tmp_path) -> None:
    objective = build("mico-rev")
    run(objective, batch())
    torch.save(objective.state_dict(), tmp_path / "objective.pt")
    other = make_objective("mico-rev", D, A, hidden=16)
    other.load_state_dict(torch.load(tmp_path / "objective.pt", weights_only=True))
    assert int(other.steps) == 1
    same = run(other, batch()).representation_loss
    assert torch.equal(same, run(objective, batch()).representation_loss)
