"""Predictable irrelevant numbers and pictures: other instances, a shadow; and the reward's gate."""

import pickle
from typing import Any

import numpy as np
import pytest

from revbis.envs import make_env
from revbis.envs.distractors import VARIANTS
from revbis.envs.gate import PERIODS, period
from revbis.envs.instances import INSTANCES, POLICIES, filmed, recordings, smooth_actions
from revbis.envs.state_noise import StateNoise, oscillators, parse_kinds, projection

TOY = "envs.toys:Good"  # a vector of two numbers and two actions
KINDS = ("instance", "shadow", "instance+shadow", "gaussian+shadow+walk")


def played(steps: int = 6, seed: int = 4, actions: Any = None, **settings: Any) -> Any:
    """Observations rotated back, states and rewards of one episode of the toy."""
    settings = {"observation": "state", "action_repeat": 1} | settings
    env = make_env(TOY, seed=seed, **settings)
    observation, info = env.reset()
    observations, states, rewards = [observation], [info["state"]], []
    if actions is None:
        actions = np.random.default_rng(0).uniform(-1, 1, (steps, 2)).astype(np.float32)
    for action in actions:
        observation, reward, *_, info = env.step(action)
        observations.append(observation)
        states.append(info["state"])
        rewards.append(reward)
    seen = np.stack(observations)
    own = 2 + 2 * bool(settings.get("reward_gate"))
    if seen.shape[1] > own:
        seen = seen @ projection(TOY, own, seen.shape[1] - own)
    return seen, np.stack(states), np.array(rewards)


@pytest.mark.parametrize("kind", KINDS)
def test_the_task_does_not_notice(kind: str) -> None:
    clean, states, rewards = played()
    seen, same, again = played(state_noise=4, state_noise_kind=kind)
    assert seen.shape == (7, 2 + 4 * len(parse_kinds(kind)))
    np.testing.assert_allclose(seen[:, :2], clean, atol=1e-5)
    assert np.array_equal(same, states) and np.array_equal(again, rewards)
    identity = make_env(TOY, seed=1, observation="state", state_noise=4, state_noise_kind=kind)
    assert identity.identity["state_noise"] == f"{kind}-v1(4)/train"


@pytest.mark.parametrize("split", ["train", "eval"])
def test_instances_are_other_episodes_of_the_task(split: Any) -> None:
    recorded = recordings(TOY, 1, split)
    assert len(recorded) == len(INSTANCES[split]) and len(recorded[0].views) == 20
    seen, *_ = played(15, state_noise=4, state_noise_kind="instance", distractor_split=split)
    for first in (2, 4):  # each instance is a stretch of a recording, which begins again
        shown = seen[:, first : first + 2]
        found = [
            np.allclose(shown, np.roll(each.views, -start, axis=0)[:16], atol=1e-5)
            for each in recorded
            for start in range(20)
        ]
        assert sum(found) == 1
    with pytest.raises(ValueError, match="read-only"):
        recorded[0].views[0] = 0.0


def test_instances_are_moved_by_a_policy_of_their_own() -> None:
    """The toy moves by a tenth of the action: its recordings tell which actions moved it."""
    for split, variants in INSTANCES.items():
        for variant, each in zip(variants, recordings(TOY, 1, split), strict=True):
            actions = smooth_actions(variant, split, 1000, 2)
            moved = np.diff(each.states, axis=0) / 0.1
            np.testing.assert_allclose(moved, actions[: len(moved)], atol=1e-5)
    one, two = (played(5, state_noise=2, state_noise_kind="instance", actions=a) for a in ACTIONS)
    assert np.allclose(one[0][:, 2:], two[0][:, 2:], atol=1e-5)
    assert not np.allclose(one[0][:, :2], two[0][:, :2], atol=1e-2)


ACTIONS = (np.ones((5, 2), np.float32), -np.ones((5, 2), np.float32))


def test_policies_are_smooth_and_those_of_evaluation_are_others() -> None:
    train, held_out = POLICIES["train"], POLICIES["eval"]
    assert train.correlation[1] < held_out.correlation[0] and train.size[1] < held_out.size[0]
    actions = smooth_actions(3, "train", 20_000, 1)[:, 0]
    kept = np.corrcoef(actions[:-1], actions[1:])[0, 1]
    assert np.exp(-1 / 4) < kept < np.exp(-1 / 16)
    assert np.abs(actions).max() <= 1 and 0.3 < actions.std() < 0.8
    assert np.array_equal(smooth_actions(3, "train", 50, 1), smooth_actions(3, "train", 50, 1))


def test_a_shadow_by_hand() -> None:
    """Number by number: z ← λz + b(w·a + wind), seen as real parts, then imaginary ones."""
    rotation, gain, weights = oscillators(TOY, 2, 2)
    np.testing.assert_allclose(np.linalg.norm(weights, axis=1), 1.0)
    actions = np.random.default_rng(1).uniform(-1, 1, (8, 2)).astype(np.float32)
    seen, *_ = played(actions=actions, state_noise=3, state_noise_kind="shadow")
    noise = StateNoise(3, "shadow", 2, task=TOY)
    noise.reset(4)
    part = noise._parts["shadow"]
    z, wind = part._z.tolist(), part._wind.tolist()  # type: ignore[union-attr]
    for t in range(9):
        wanted = [z[0].real, z[1].real, z[0].imag]  # the last of four is left out
        np.testing.assert_allclose(seen[t, 2:], wanted, atol=1e-5)
        if t < 8:
            push = [
                sum(weights[k, i] * float(actions[t, i]) for i in range(2)) + wind[k]
                for k in range(2)
            ]
            z = [rotation[k] * z[k] + gain[k] * push[k] for k in range(2)]


def test_a_shadow_of_random_actions_has_deviation_one() -> None:
    noise = StateNoise(40, "shadow", 2, task=TOY)
    noise.reset(1)
    noise._parts["shadow"]._wind[:] = 0  # type: ignore[union-attr]
    generator, seen = np.random.default_rng(0), []
    for _ in range(4000):
        noise.drive(generator.uniform(-1, 1, 2))
        seen.append(noise.numbers()["shadow"])
    assert np.stack(seen).std(axis=0).mean() == pytest.approx(1.0, abs=0.05)


def test_actions_control_a_shadow_alone() -> None:
    one, two = (played(actions=a, state_noise=4, state_noise_kind="shadow+walk") for a in ACTIONS)
    assert np.allclose(one[0][0], two[0][0])
    assert (np.abs(one[0][5, 2:6] - two[0][5, 2:6]) > 0.01).all()
    assert np.allclose(one[0][:, 6:], two[0][:, 6:], atol=1e-5)
    beyond = played(actions=3 * ACTIONS[0], state_noise=4, state_noise_kind="shadow+walk")
    assert np.allclose(beyond[0][:, 2:], one[0][:, 2:], atol=1e-5)  # clipped, as the task does


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_and_the_actions_determine_all(kind: str) -> None:
    settings: dict[str, Any] = {"state_noise": 4, "state_noise_kind": kind}
    first, again, other = (played(seed=seed, **settings)[0] for seed in (4, 4, 5))
    assert np.array_equal(first, again) and not np.allclose(first[:, 2:], other[:, 2:])
    held_out, _, _ = played(**settings, distractor_split="eval")
    assert not np.allclose(first[:, 2:], held_out[:, 2:])
    np.testing.assert_allclose(first[:, :2], held_out[:, :2], atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_it_survives_pickling_and_skipping(kind: str) -> None:
    noise = StateNoise(4, kind, 2, task=TOY)
    noise.reset(3)
    noise.drive(np.ones(2))
    noise.observe(np.zeros(2))
    copies = [pickle.loads(pickle.dumps(noise)) for _ in range(2)]
    for _ in range(3):
        copies[0].observe(np.zeros(2))
    copies[1].skip(3)
    assert np.array_equal(*(each.observe(np.zeros(2)) for each in copies))


def test_kinds_have_random_numbers_of_their_own() -> None:
    both = StateNoise(4, "gaussian+walk", 2, task=TOY)
    alone = StateNoise(4, "gaussian", 2, task=TOY)
    for each in (both, alone):
        each.reset(1)
    found = both.numbers()
    assert np.array_equal(found["gaussian"], alone.numbers()["gaussian"])
    assert not np.allclose(found["gaussian"], found["walk"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"state_noise_kind": "instnace"},
            "by [+], got 'instnace'; did you mean 'instance'",
        ),
        ({"state_noise_kind": "walk+walk"}, "names a kind twice: 'walk[+]walk'"),
        (
            {"state_noise": 5, "state_noise_kind": "instance"},
            "whole instances: state_noise must be a multiple of the 2 numbers of envs.toys:Good, "
            "such as 4 or 6, got 5",
        ),
        ({"observation": "pixels", "reward_gate": True}, "reward_gate requires observation state"),
    ],
)
def test_what_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_env(TOY, seed=1, **{"observation": "state"} | settings)


# ---- the gate


@pytest.mark.parametrize("split", ["train", "eval"])
def test_the_gate_by_hand(split: Any) -> None:
    """Three simulator steps an action: each reward is multiplied by (1 + cos θ)/2 before it."""
    plain, _, _ = played(6, action_repeat=1)
    _, _, rewards = played(
        actions=np.repeat(np.zeros((2, 2), np.float32), 1, axis=0), action_repeat=3
    )
    seen, states, gated = played(
        actions=np.zeros((2, 2), np.float32),
        action_repeat=3,
        reward_gate=True,
        distractor_split=split,
    )
    np.testing.assert_allclose(seen[0, :2], plain[0])
    np.testing.assert_allclose(seen[:, 2:], states[:, -2:], atol=1e-6)
    angle = np.unwrap(np.arctan2(states[:, -1], states[:, -2]))
    pace = np.diff(angle) / 3
    np.testing.assert_allclose(pace, pace[0])
    short, long = PERIODS[split]
    assert short <= 2 * np.pi / pace[0] < long
    for t in range(2):  # the toy rests, so each of the three rewards is a third of their sum
        gates = [(1 + np.cos(angle[t] + k * pace[0])) / 2 for k in range(3)]
        assert gated[t] == pytest.approx(rewards[t] * np.mean(gates))


def test_gates_of_the_splits_differ_and_are_recorded() -> None:
    periods = {split: [period(each) for each in pool] for split, pool in VARIANTS.items()}
    assert max(periods["train"]) < min(periods["eval"])
    env = make_env(TOY, seed=1, observation="state", reward_gate=True)
    assert env.identity["reward_gate"] == "gate-v1/train" and env.observation_space.shape == (4,)
    assert "reward_gate" not in make_env(TOY, seed=1, observation="state").identity
    mixed = {"state_noise": 4, "state_noise_kind": "instance", "reward_gate": True}
    assert played(**mixed)[0].shape == (7, 8)


# ---- pictures


@pytest.mark.env("dmc")
def test_another_instance_is_seen_behind_the_task() -> None:
    settings: dict[str, Any] = {"pixels": 24, "frame_stack": 1, "action_repeat": 50}
    settings |= {"quality": "fast"}
    task = "dmc:cartpole_balance"
    shown, clean = (
        make_env(task, seed=1, **settings, **extra) for extra in ({"distractor": "instance"}, {})
    )
    assert shown.identity["distractor"] == "instance-v1/train"
    recorded = [filmed(task, 50, "train", number, 24, "fast").views for number in range(12)]
    assert recorded[0].shape == (20, 3, 24, 24)
    views = [(shown.reset()[0], clean.reset()[0])]
    masks = [clean.simulation.background_mask()]
    for _ in range(3):
        action = np.zeros(1, np.float32)
        views.append((shown.step(action)[0], clean.step(action)[0]))
        masks.append(clean.simulation.background_mask())
    matches = []
    for clip in recorded:
        for start in range(20):
            behind = np.roll(clip, -start, axis=0)[:4]
            matches.append(
                all(
                    np.array_equal(seen[:, mask], picture[:, mask])
                    for (seen, _), mask, picture in zip(views, masks, behind, strict=True)
                )
            )
    assert any(matches)
    for (seen, own), mask in zip(views, masks, strict=True):
        assert np.array_equal(seen[:, ~mask], own[:, ~mask]) and 0 < mask.mean() < 1
    for env in (shown, clean):
        env.close()
