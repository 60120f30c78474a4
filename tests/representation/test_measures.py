"""The yardsticks against embeddings whose answer is known."""

import numpy as np
import pytest
import torch

from revbis.representation.measures import (
    complete_returns,
    denoising_factor,
    returns_to_go,
    state_probe,
)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_the_denoising_factor_of_three_points_on_a_line() -> None:
    # Anchors 0, 1: every negative is at distance 1. Positives are at 1/4 and 3/4: Pos = 1/2.
    anchors = torch.tensor([[0.0], [1.0]])
    positives = torch.tensor([[[0.25], [1.75]]])
    assert denoising_factor(anchors, positives, generator()) == pytest.approx(1 / 3)


def test_an_embedding_that_noise_does_not_move_has_factor_1() -> None:
    anchors = torch.randn(20, 3, generator=generator())
    assert denoising_factor(anchors, anchors.expand(16, -1, -1), generator()) == 1.0


def test_an_embedding_of_the_noise_alone_has_factor_0_or_less() -> None:
    # All anchors are of one episode with one background: they are equal, and other ones are not.
    anchors = torch.ones(20, 3)
    others = torch.randn(16, 1, 3, generator=generator()).expand(-1, 20, -1)
    assert denoising_factor(anchors, others, generator()) == -1.0
    # Independent noise moves an embedding as far as another state does.
    fresh = torch.randn(17, 2000, 3, generator=generator())
    assert abs(denoising_factor(fresh[0], fresh[1:], generator())) < 0.01


def test_a_constant_embedding_has_factor_0() -> None:
    anchors = torch.full((20, 3), 0.1)
    assert denoising_factor(anchors, anchors.expand(16, -1, -1), generator()) == 0.0


def test_no_anchor_is_its_own_negative() -> None:
    # Otherwise the mean distance of 0 and 1 to negatives would be below 1.
    anchors = torch.tensor([[0.0], [1.0]])
    positives = torch.zeros(1000, 2, 1)  # Pos = 1/2
    assert denoising_factor(anchors, positives, generator()) == pytest.approx(1 / 3)


@pytest.fixture
def states() -> np.ndarray:
    """Four numbers of six episodes with 50 steps; the last is constant."""
    drawn = np.random.default_rng(0).normal(size=(300, 4)) * [1.0, 10.0, 0.1, 0.0]
    return drawn + [0.0, 5.0, 0.0, 7.0]


EPISODE = np.repeat(np.arange(6), 50)


def test_the_state_itself_has_r2_1(states: np.ndarray) -> None:
    assert state_probe(states, states, EPISODE) == pytest.approx(1.0, abs=1e-4)
    mixed = states @ np.random.default_rng(1).normal(size=(4, 9)) + 3.0
    assert state_probe(mixed, states, EPISODE) == pytest.approx(1.0, abs=1e-2)


def test_wide_embeddings_are_fitted_by_way_of_the_samples(states: np.ndarray) -> None:
    """Adding copies of a column to fewer than N of them, and to more, is the same ridge regression.

    300 moments in five folds: 240 are fitted. k copies of z weigh as one with a k-th of the ridge.
    """
    z = states @ np.random.default_rng(1).normal(size=(states.shape[1], 3))
    z += np.random.default_rng(2).normal(size=z.shape)
    narrow, wide = (state_probe(np.tile(z, copies), states, EPISODE) for copies in (70, 90))
    assert narrow == pytest.approx(wide, abs=1e-4)
    assert 0.1 < wide < 0.99


def test_a_constant_embedding_has_r2_0(states: np.ndarray) -> None:
    for value in (0.0, 0.1, 1e6):
        z = np.full((300, 5), value, dtype=np.float32).astype(np.float64)
        assert state_probe(z, states, EPISODE) == 0.0


def test_one_of_two_numbers_is_half(states: np.ndarray) -> None:
    found = state_probe(states[:, :1], states[:, :2], EPISODE)
    assert found == pytest.approx(0.5, abs=0.01)


def test_an_episode_is_predicted_by_others_alone() -> None:
    # The embedding names the episode: within episodes it would explain all, beyond them nothing.
    z = np.eye(6)[EPISODE]
    values = np.random.default_rng(0).normal(size=6)[EPISODE, None]
    assert state_probe(z, values, EPISODE) == 0.0


@pytest.mark.parametrize("states", [np.ones((300, 3)), np.empty((300, 0))])
def test_a_state_that_never_changes_has_no_r2(states) -> None:
    z = np.random.default_rng(0).normal(size=(300, 2))
    assert state_probe(z, states, EPISODE) is None


def test_one_episode_is_not_enough(states: np.ndarray) -> None:
    with pytest.raises(ValueError, match="needs at least 2 episodes, got 1"):
        state_probe(states, states, np.zeros(300, dtype=np.int64))


def test_returns_to_go() -> None:
    # 3; 2 + 3/2; 1 + (2 + 3/2)/2.
    returns = returns_to_go(np.array([1.0, 2.0, 3.0]), 0.5)
    assert returns.tolist() == [2.75, 3.5, 3.0]


@pytest.mark.parametrize(
    ("length", "discount", "terminated", "count"),
    [
        (250, 0.97, False, 175),  # 0.97^76 is the first power below 0.1: 76 rewards are enough
        (250, 0.05, False, 250),  # one is
        (250, 0.97, True, 250),
        (100, 0.99, False, 50),  # the first half in any case
        (5, 0.99, False, 3),
        (1, 0.99, False, 1),
        (10, 0.0, False, 10),
    ],
)
def test_returns_that_a_time_limit_cuts_off_are_left_out(
    length: int, discount: float, terminated: bool, count: int
) -> None:
    assert complete_returns(length, discount, terminated) == count
