import pytest
import torch

from revbis import agents
from revbis.agents.taco import TacoHeads
from revbis.replay import Batch, OneStep, Window

SMALL = {"feature_dim": 8, "latent_dim": 6, "hidden": 16, "channels": 4, "explore_steps": 3}
PIXELS, VECTOR, ACTION, WINDOW = (6, 20, 21), (5,), 2, 3


def tensors(state):
    """All tensors of a state, in their order."""
    if isinstance(state, torch.Tensor):
        return [state]
    values = state.values() if isinstance(state, dict) else state
    return [t for v in values if isinstance(v, dict | list | torch.Tensor) for t in tensors(v)]


@pytest.fixture
def make_agent():
    def make(method="drqv2", mode="joint", shape=PIXELS, seed=0, **options):
        settings = agents.resolve(method).settings(mode=mode, **(SMALL | options))
        return agents.make_agent(method, settings, shape, ACTION, seed=seed)

    return make


@pytest.fixture
def make_batch():
    def make(seed=0, size=12, shape=PIXELS, one_step=True):
        generator = torch.Generator().manual_seed(seed)

        def observations():
            if len(shape) == 3:
                high = (size, *shape)
                return torch.randint(0, 256, high, dtype=torch.uint8, generator=generator)
            return torch.randn(size, *shape, generator=generator)

        def column():
            return torch.rand(size, generator=generator)

        action = 2 * torch.rand(size, ACTION, generator=generator) - 1
        batch = Batch(observations(), action, column(), column(), observations())
        extra = OneStep(column(), column(), observations())
        actions = 2 * torch.rand(size, WINDOW, ACTION, generator=generator) - 1
        window = Window(actions, observations(), None)  # for taco; others ignore it
        return batch._replace(one_step=extra if one_step else None, window=window)

    return make


@pytest.fixture
def parameters_by_part():
    """Copies of all parameters, by the part of the agent they belong to."""

    def collect(agent):
        parts, objective = agent.parts, agent.parts.objective
        groups = {
            "encoder": parts.encoder.parameters(),
            "actor": [*parts.readouts.of("actor"), *parts.policy.parameters()],
            "critic": [*parts.readouts.of("critic"), *parts.critic.parameters()],
            "target": [*parts.readouts.of("target"), *parts.target.parameters()],
        }
        if any(True for _ in parts.tokens.parameters()):
            groups["tokens"] = parts.tokens.parameters()
        if objective is not None:
            groups["projection"] = parts.readouts.of("projection")
            if isinstance(objective, TacoHeads):
                groups["heads"] = objective.parameters()
            else:
                groups["norm"] = parts.norm.parameters()
                groups["heads"] = objective.representation_parameters()
                groups["raw_c"] = objective.coefficient_parameters()
        return {name: [p.detach().clone() for p in group] for name, group in groups.items()}

    return collect


@pytest.fixture
def changed(parameters_by_part):
    """The parts of the agent that a call changes."""

    def parts(agent, call):
        before = parameters_by_part(agent)
        call()
        after = parameters_by_part(agent)
        same = {n: all(map(torch.equal, before[n], after[n])) for n in before}
        return {name for name, unchanged in same.items() if not unchanged}

    return parts
