"""Every agent on a pretend GPU: no tensor is on the wrong device, and no update waits."""

from unittest import mock

import numpy as np
import pytest
import torch
from tests.agents import mrq, tdmpc
from tests.agents.conftest import ACTION, PIXELS, SMALL, VECTOR
from tests.agents.pretend import GPU, DeviceError, on_cpu, pretend_gpu
from tests.replay import play

from revbis.agents import drqv2, make_agent, resolve
from revbis.objectives import OBJECTIVES, base
from revbis.replay import PrioritisedReplay, Replay, TransitionReplay

TINY = SMALL | {"batch_size": 6}


def filled(kind, shape):
    """Short episodes, some of which terminate."""
    pixels = len(shape) == 3
    frame = (3, *shape[1:]) if pixels else shape
    options = {"stack": 2 if pixels else 1, "n_step": 3, "shift": 1, "discount": 0.9}
    replay = kind(60, frame, ACTION, one_step=kind is Replay, **options)
    play([replay], np.random.default_rng(0), 50, frame, 0.1)
    return replay


def observations(shape):
    generator = torch.Generator().manual_seed(5)
    if len(shape) == 3:
        return torch.randint(0, 256, (4, *shape), dtype=torch.uint8, generator=generator)
    return torch.randn(4, *shape, generator=generator)


def life(make, kind, shape, device, update):
    """An agent, and what it does and learns, as numbers of the CPU."""
    agent, replay, seen = make(device, 0), filled(kind, shape), observations(shape)
    agent.begin_episode()
    actions = [agent.act(seen[0].numpy(), step, explore=True) for step in (0, 9)]
    shown = [agent.update(replay, 9, with_metrics=True), update(agent, replay)]
    agent.begin_episode()
    actions.append(agent.act(seen[0].numpy(), 9, explore=False))
    z = agent.embed(seen)
    shown += [z, agent.distance(z, z), agent.distance(z.cpu(), z.cpu())]
    assert [each.device.type for each in shown[-3:]] == [device, device, "cpu"]
    again = make(device, 1)
    again.load_state_dict(agent.state_dict())
    shown.append(again.update(filled(kind, shape), 10))
    again.begin_episode()
    actions.append(again.act(seen[1].numpy(), 9, explore=True))
    return agent, on_cpu([torch.from_numpy(np.stack(actions)), agent.status(), *shown])


def update_once(agent, replay):
    return agent.update(replay, 10)


def check(make, kind, shape=VECTOR, update=update_once, copies=0):
    """An agent lives alike on CPU and GPU, and the state of each fits the other.

    Args:
        make: Makes the agent from device and seed.
        kind: Of its replay buffer.
        shape: Of its observations.
        update: An update for which the host does not wait ...
        copies: ... but for so many copies to the CPU.
    """
    with mock.patch.object(base, "_LOOKED_AT", ()):  # objectives look as seldom as on a GPU
        on_host, expected = life(make, kind, shape, "cpu", update)
    state = on_host.state_dict()
    with pretend_gpu() as gpu:

        def watched(agent, replay):
            with gpu.busy(copies):
                return update(agent, replay)

        agent, found = life(make, kind, shape, "cuda", watched)
        torch.testing.assert_close(found, expected)
        make("cpu", 1).load_state_dict(on_cpu(agent.state_dict()))
        agent.load_state_dict(state)
        torch.testing.assert_close(on_cpu(agent.state_dict()["networks"]), state["networks"])
        agent.update(filled(kind, shape), 10)


def check_updates(make, kind, update=update_once, copies=0):
    """The updates of `check` alone."""
    with pretend_gpu() as gpu:
        agent, replay = make("cuda", 0), filled(kind, VECTOR)
        agent.update(replay, 9, with_metrics=True)
        with gpu.busy(copies):
            update(agent, replay)


def actor_critic(method, mode="joint", shape=VECTOR, **options):
    settings = resolve(method).settings(mode=mode, **TINY | options)
    return lambda device, seed: make_agent(
        method, settings, shape, ACTION, seed=seed, device=device
    )


@pytest.mark.parametrize("mode", ["joint", "decoupled"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_drqv2_with_an_objective(objective, mode):
    check(actor_critic(objective, mode, objective_hidden=8), Replay)


@pytest.mark.parametrize("mode", ["alternating", "balanced"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_further_modes(objective, mode):
    check_updates(actor_critic(objective, mode, objective_hidden=8), Replay)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("drqv2", {}),
        ("drqv2", {"shape": PIXELS, "action_penalty": 0.01}),
        ("simsr-rev-full", {"shape": PIXELS, "mode": "balanced", "encoder_norm": True}),
        ("laws", {"shape": PIXELS, "mode": "decoupled"}),
        ("mico-rev-full", {"pairing": "permuted", "transition": "one_step"}),
        ("simsr-rev", {"coefficient": "discount", "reward_scale": "running"}),
        ("energy-rev-full", {"coefficient": 0.5, "pairing": "permuted"}),
        ("dbc", {"pairing": "all", "objective_loss": "huber"}),
        ("taco", {"shape": PIXELS}),
        ("taco", {"mode": "alternating", "action_steps": 2}),
        ("taco", {"mode": "balanced", "tokens": "identity"}),
        ("taco", {"taco_loss": False, "curl_loss": False, "reward_loss": False}),
    ],
)
def test_options_of_drqv2_and_taco(method, options):
    check(actor_critic(method, **options), Replay, options.get("shape", VECTOR))


@pytest.mark.parametrize("shape", [VECTOR, (6, 31, 33)])
def test_tdmpc(shape):
    """The host waits for the priorities."""
    settings = resolve("tdmpc").settings(**tdmpc.TINY)

    def make(device, seed):
        return make_agent("tdmpc", settings, shape, ACTION, seed=seed, device=device)

    check(make, PrioritisedReplay, shape, copies=1)


def mrq_agent(*representation, shape=VECTOR, discrete=False):
    options = mrq.TINY | {"target_every": 2, "representation": representation}
    options |= {"centre_images": True}  # where there are images
    more = {"discrete": True} if discrete else {}
    settings = resolve("mrq").settings(**options)
    return lambda device, seed: make_agent(
        "mrq", settings, shape, ACTION, seed=seed, device=device, **more
    )


def of_mrq(agent, replay):
    """Encoders are learned at every other update, with metrics at the last; here without."""
    agent.learn_encoders(replay.sample_windows(6, 3), 0.9, terminates=True)
    return agent.update(replay, 10)


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize(
    ("shape", "losses"),
    [
        (VECTOR, ("model",)),
        (VECTOR, ("simsr-rev-full",)),
        (VECTOR, ("model", "laws")),
        (mrq.PIXELS, ("model", "energy-rev-full")),
    ],
)
def test_mrq(shape, losses, discrete):
    """The host waits for the priorities."""
    make = mrq_agent(*losses, shape=shape, discrete=discrete)
    check(make, TransitionReplay, shape, of_mrq, copies=1)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_mrq_with_an_objective(objective):
    check_updates(mrq_agent("model", objective), TransitionReplay, of_mrq, copies=1)


# Planted mistakes are noticed


def cpu_tensor(agent, monkeypatch):
    def loss(q1, q2, target_q):
        return (torch.ones(len(q1)) * (q1 + q2 - target_q)).mean()

    monkeypatch.setattr(drqv2, "critic_loss", loss)


def cpu_generator(agent, monkeypatch):
    monkeypatch.setattr(agent, "_update_generator", torch.Generator().manual_seed(0))


def no_generator(agent, monkeypatch):
    monkeypatch.setattr(agent, "noisy", lambda mean, _: mean + torch.randn_like(mean))


def item(agent, monkeypatch):
    monkeypatch.setattr(drqv2, "critic_metrics", lambda loss, *_: {"critic_loss": loss.item()})


def cpu_network(agent, monkeypatch):
    policy = make_agent("drqv2", agent.settings, VECTOR, ACTION, seed=0).parts.policy
    monkeypatch.setattr(agent.parts, "policy", policy)


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (cpu_tensor, r"mul.Tensor has tensors of the GPU and one of the CPU: torch.float32 \[6\]"),
        (
            cpu_network,
            r"layer_norm.default has tensors of the GPU and one of the CPU",
        ),
        (cpu_generator, "randn.generator on cuda draws from a generator of cpu"),
        (no_generator, "randn_like.default draws from the GPU's global generator"),
        (item, "the host waits for the GPU: aten._local_scalar_dense.default reads numbers"),
    ],
)
def test_planted_mistakes_are_found(plant, message, monkeypatch):
    with pretend_gpu() as gpu:
        agent, replay = actor_critic("drqv2")("cuda", 0), filled(Replay, VECTOR)
        agent.update(replay, 9)
        with gpu.busy():
            agent.update(replay, 10)
        plant(agent, monkeypatch)
        with gpu.busy(), pytest.raises(DeviceError, match=message):
            agent.update(replay, 11)


ALLOWED = {
    "a number of the CPU for each element": lambda x: x * torch.tensor(2.0) + torch.ones(()),
    "a copy that does not block": lambda x: x + torch.ones(3).to(GPU, non_blocking=True),
    "indices": lambda x: x[torch.arange(2, device=x.device)],
    "its own generator": lambda x: x + torch.rand(3, generator=torch.Generator("cuda"), device=GPU),
    "the CPU's draws": lambda x: torch.rand(3, generator=torch.Generator()),
    "moments": lambda x: torch.zeros_like(x).lerp_(x, 0.5),
    "a choice": lambda x: torch.where(x > 0, x, 1.0),
    "gradients": lambda x: torch.autograd.grad(x.requires_grad_().exp().sum(), x),
}
REFUSED = {
    "numbers beside a tensor": (lambda x: torch.stack([x.sum(), torch.ones(())]), "one of the CPU"),
    "a sum on the CPU": (lambda x: torch.zeros(()).add_(x.sum()), "one of the CPU"),
    "indices of the CPU": (lambda x: x[torch.arange(2)], "one of the CPU"),
    "a condition": (lambda x: bool((x > 0).all()), "waits .* reads numbers"),
    "float": (lambda x: float(x[0]), "waits .* reads numbers"),
    "nonzero": (torch.nonzero, "waits .* reads numbers"),
    "a mask": (lambda x: x[x > 0], "waits .* by a mask"),
    "a masked assignment": (lambda x: x.__setitem__(x > 0, x[0]), "waits .* by a mask"),
    "cpu": (lambda x: x.cpu(), "waits .* copies to the CPU"),
    "tolist": (lambda x: x.tolist(), "waits .* copies to the CPU"),
    "a late copy": (lambda x: x.to("cpu", non_blocking=True), "its numbers come later"),
    "a copy that blocks": (lambda x: torch.ones(3).to(x.device), "waits .* copies from the CPU"),
    "a list": (lambda x: x + torch.tensor([1.0, 2.0, 3.0], device=GPU), "copies from the CPU"),
    "a list as it is": (lambda x: x.new_tensor([1.0]), "waits .* copies from the CPU"),
    "numpy": (lambda x: x.numpy(), r"copy it by cpu\(\) first"),
    "numpy's functions": (np.asarray, r"copy it by cpu\(\) first"),
    "its address": (lambda x: x.data_ptr(), "for kernels of the CPU"),
    "its generator": (
        lambda x: torch.rand(3, generator=torch.Generator("cuda")),
        "on cpu draws from a generator of cuda",
    ),
    "a state of the CPU's": (
        lambda x: torch.Generator("cuda").set_state(torch.Generator().get_state()),
        "a state of another kind for a generator of cuda",
    ),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_a_gpu_allows(name):
    with pretend_gpu() as gpu:
        x = torch.ones(3, device="cuda")
        with gpu.busy():
            ALLOWED[name](x)


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_gpu_refuses_or_waits_for(name):
    action, message = REFUSED[name]
    with pretend_gpu() as gpu:
        x = torch.ones(3, device="cuda")
        with gpu.busy(), pytest.raises(DeviceError, match=message):
            action(x)


def test_copies_are_counted_and_nothing_stays():
    before = torch.Generator
    with pretend_gpu() as gpu:
        x = torch.ones(3, device="cuda:0")
        assert (x.device, x.sum().item(), x.is_cuda) == (GPU, 3.0, True)  # outside of updates
        with gpu.busy(1):
            assert x.cpu().tolist() == [1.0] * 3
        missing = pytest.raises(AssertionError, match="2 of 2 copies to the CPU did not happen")
        with missing, gpu.busy(2):
            pass
    assert torch.Generator is before
    with pytest.raises(DeviceError, match="after the pretend GPU was closed"):
        x + 1
