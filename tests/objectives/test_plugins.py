"""A user's own objective: made from package.module:factory, and refused with a reason."""

import inspect
import sys

import pytest
import torch

from revbis.objectives import BaseObjective, Objective, make_objective
from revbis.objectives.plugins import _MEMBERS

HOME = "tests.objectives.own_objectives"


def transitions(rows: int = 7) -> tuple[torch.Tensor, ...]:
    g = torch.Generator().manual_seed(3)
    z, next_z = torch.randn(2, rows, 5, generator=g)
    action, reward = torch.rand(rows, 2, generator=g), torch.rand(rows, 1, generator=g)
    return z.requires_grad_(), action, reward, torch.full((rows,), 0.9), next_z


def test_it_is_made_and_trained() -> None:
    objective = make_objective(f"{HOME}:make", 5, 2, width=6)
    assert isinstance(objective, Objective) and isinstance(objective, BaseObjective)
    assert (objective.compares, objective.metric, objective.status()) == ("state", "revised", {})
    assert list(objective.coefficient_parameters()) == []
    optimiser = torch.optim.Adam(objective.representation_parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        out = objective(*transitions())
        optimiser.zero_grad()
        out.representation_loss.backward()
        optimiser.step()
        losses.append(float(out.representation_loss.detach()))
    assert losses[-1] < 0.8 * losses[0]
    assert int(objective.steps) == 30


def test_metrics_are_those_of_what_is_given() -> None:
    metrics = make_objective(f"{HOME}:make", 5, 2)(*transitions()).metrics
    assert float(metrics["c"]) == pytest.approx(0.9)
    assert {"representation_loss", "effective_rank", "distance_q50"} <= set(metrics)
    assert not {"reward_share", "self_distance", "coefficient_loss"} & set(metrics)
    metrics = make_objective(f"{HOME}:Weighted", 5, 2)(*transitions()).metrics
    assert "coefficient_loss" in metrics and "c" not in metrics


def test_its_parameters_are_shared_out() -> None:
    objective = make_objective(f"{HOME}:Weighted", 5, 2)
    assert list(objective.coefficient_parameters()) == [objective.raw]
    assert list(objective.representation_parameters()) == list(objective.head.parameters())
    objective.head.bias.requires_grad_(False)
    assert list(objective.representation_parameters()) == [objective.head.weight]


def test_the_trial_leaves_no_trace() -> None:
    torch.manual_seed(0)
    weight = torch.nn.Linear(5, 8).weight.detach().clone()
    after = torch.rand(3)
    torch.manual_seed(0)
    objective = make_objective(f"{HOME}:make", 5, 2)
    assert torch.equal(objective.head.weight, weight)
    assert torch.equal(torch.rand(3), after)
    assert int(objective.steps) == 0
    assert all(parameter.grad is None for parameter in objective.parameters())


def test_a_module_of_the_working_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder_objective.py").write_text(f"from {HOME} import make\n")
    assert make_objective("folder_objective:make", 4, 1).latent_dim == 4


def test_members_are_those_of_the_protocol() -> None:
    documented = {
        name
        for name, member in vars(Objective).items()
        if (inspect.isfunction(member) or isinstance(member, property)) and name[0] != "_"
    }
    assert {*_MEMBERS, "parameters"} == documented and "distance" in documented
    assert "parameters" not in _MEMBERS  # the package uses the two parts of it


class WithoutParameters:
    """An objective that is no module and has only what there was before `parameters`."""

    compares, metric, policy_actions = "state", "revised", ()

    def __init__(self, latent_dim: int, action_dim: int) -> None:
        self._own = make_objective("simsr-rev-no-sa", latent_dim, action_dim)

    def __call__(self, *batch, generator=None):
        return self._own(*batch, generator=generator)

    def __getattr__(self, name: str):
        if name == "parameters" or name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._own, name)

    def __dir__(self):
        return [*_MEMBERS, "__call__"]


def test_older_objectives_without_parameters_work() -> None:
    objective = make_objective("tests.objectives.test_plugins:WithoutParameters", 5, 2)
    out = objective(*transitions())
    assert torch.equal(out.loss, out.representation_loss + out.coefficient_loss)


def test_one_loss_and_a_policy_for_own_objectives() -> None:
    objective = make_objective(f"{HOME}:make", 5, 2)
    z, *rest = transitions()
    out = objective(z, *rest, policy=None, states=(z, z))
    assert out.loss is out.representation_loss
    optimiser = torch.optim.Adam(objective.parameters())
    out.loss.backward()
    optimiser.step()


MISTAKES = {
    "no_such_function": "has no function 'no_such_function'",
    "not_a_function": "has no function 'not_a_function'",
    "raises": r"the factory raised KeyError at own_objectives.py:\d+: 'head\\nof two lines'",
    "returns_none": "the factory must return an objective, got None",
    "returns_a_class": "the factory must return an objective, got <class .*Euclidean",
    "returns_a_network": "but Linear has no coefficient_parameters, compares, .*BaseObjective",
    "takes_nothing": r"the factory is called with \(latent_dim, action_dim\): too many positional",
    "wrong_width": r"embed\(z, action\) raised RuntimeError at own_objectives.py:\d+: mat1",
    "without_compute": "raised NotImplementedError: Changed must define compute",
    "without_distance": "raised NotImplementedError: Changed must define distance",
    "wrong_level": "compares must be one of state, state_action, got 'pair'",
    "wrong_metric": "metric must be one of .*, got 'revisd'; did you mean 'revised'",
    "flat_distance": r"distance\(x, y\) must be \[6, 4\] for a batch of 6, got \[5\]",
    "infinite_distance": r"distance\(x, y\) has 24 non-finite values of 24",
    "squeezed": r"embed\(z, action\) must be \[6, D\] for a batch of 6, got \[6\]",
    "scales_to_none": r"scale\(z\) must be a tensor, got None",
    "tensors": r"representation_parameters\(\) must give trainable .*, got Tensor",
    "overlapping": r"coefficient_parameters\(\) must not repeat",
    "talkative": r"status\(\) must return a dict of numbers, got str",
    "undecided": r"status\(\)\['c'\] must be a finite number, got nan",
    "forgetful": r"load_state_dict\(state_dict\(\)\) raised AttributeError",
    "unmovable": r"to\(device\) must return the objective",
    "no_output": "raised TypeError: compute must return an ObjectiveOutput, got Tensor",
    "returns_loss": "calling the objective must give an ObjectiveOutput, got Tensor",
    "per_pair": r"representation_loss must be a scalar for a batch of 6, got \[6, 6\]",
    "detached": "representation_loss must depend on z, or it trains no encoder",
    "without_z": "representation_loss must depend on z, or it trains no encoder",
    "no_gradient_at_zero": "gradient of representation_loss with respect to z has 30 non-finite",
    "short_prediction": r"prediction must be \[6, 6\] for a batch of 6, got \[5, 6\]",
    "no_embedding": "embedding must be a tensor, got None",
    "lost_coefficient": r"coefficient_loss and coefficient_parameters\(\) must both be there",
}


@pytest.mark.parametrize(("factory", "message"), MISTAKES.items())
def test_what_does_not_work_is_refused_in_one_line(factory: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as info:
        make_objective(f"{HOME}:{factory}", 5, 2)
    text = str(info.value)
    assert text.startswith(f"{HOME}:{factory}: ") and len(text.splitlines()) == 1


def test_modules_that_are_not_there() -> None:
    name = "no_such_package.module:make"
    message = f"^{name}: there is no module 'no_such_package' on sys.path or in"
    with pytest.raises(ValueError, match=message):
        make_objective(name, 5, 2)


def test_modules_that_cannot_be_imported(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_objective.py").write_text("def make(:\n")
    with pytest.raises(ValueError, match="importing 'broken_objective' raised SyntaxError"):
        make_objective("broken_objective:make", 5, 2)
    (tmp_path / "needy_objective.py").write_text("import surely_not_installed\n")
    with pytest.raises(ModuleNotFoundError, match="surely_not_installed"):
        make_objective("needy_objective:make", 5, 2)
