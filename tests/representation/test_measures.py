"""The yardsticks against embeddings whose answer is known."""

import numpy as np
import pytest
import torch

from revbis.representation.measures import (
    agreement,
    complete_returns,
    denoising_factor,
    draw_others,
    factor_probes,
    factor_shares,
    returns_to_go,
    state_probe,
)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def factor(anchors: torch.Tensor, positives: torch.Tensor) -> float:
    """With other anchors as negatives."""
    others = draw_others(len(positives), len(anchors), generator())
    return denoising_factor(anchors, positives, anchors[others])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_denoising_factors_by_hand(dtype: torch.dtype) -> None:
    """Two states at 0 and 10, seen again at 1 and 11: Pos = 1, Neg = (11 + 9)/2 = 10.

    With the anchors as negatives Neg is 10, too; with positives at 1/4 and 3/4 of 1, Pos is 1/2.
    """
    anchors, again = torch.tensor([[0.0], [10.0]]), torch.tensor([[[1.0], [11.0]]])
    assert denoising_factor(anchors, again, again.flip(1), dtype) == pytest.approx(9 / 11)
    assert factor(anchors / 10, torch.tensor([[[0.25], [1.75]]])) == pytest.approx(1 / 3)


def test_denoising_factors_of_extremes() -> None:
    # Noise does not move it; a constant; noise alone, whose anchors are of one background.
    anchors = torch.randn(20, 3, generator=generator())
    assert factor(anchors, anchors.expand(16, -1, -1)) == 1.0
    constant = torch.full((20, 3), 0.1)
    assert factor(constant, constant.expand(16, -1, -1)) == 0.0
    others = torch.randn(16, 1, 3, generator=generator()).expand(-1, 20, -1)
    assert factor(torch.ones(20, 3), others) == -1.0
    # Independent noise moves an embedding as far as another state does.
    fresh = torch.randn(17, 2000, 3, generator=generator())
    assert abs(factor(fresh[0], fresh[1:])) < 0.01


def test_no_element_is_its_own_other() -> None:
    others = draw_others(1000, 3, generator())
    assert others.shape == (1000, 3) and not (others == torch.arange(3)).any()
    assert [len(column.unique()) for column in others.T] == [2, 2, 2]


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


def matrix(a: float, b: float, c: float, own: float = 0.0) -> np.ndarray:
    """Distances of three elements: a = d(0,1), b = d(0,2), c = d(1,2)."""
    return np.array([[own, a, b], [a, own, c], [b, c, own]])


EXACT = matrix(1.0, 2.0, 3.0, own=0.5)


def test_an_exact_distance_agrees_in_everything() -> None:
    found = agreement(EXACT, EXACT, EXACT)
    assert (found.spearman, found.overlap, found.value) == (1.0, 1.0, 1.0)
    assert (found.stress, found.error) == pytest.approx((0.0, 0.0), abs=1e-12)
    assert (found.spread, found.self_distance, found.exact_self_distance) == (1.0, 0.5, 0.5)


def test_a_scale_is_an_error_and_no_stress() -> None:
    found = agreement(3 * EXACT, EXACT, EXACT)
    assert found.stress == pytest.approx(0.0, abs=1e-12)
    assert found.error == pytest.approx(2.0)  # ‖3d − d‖ / ‖d‖
    assert found.spread == pytest.approx(3.0)


def test_by_hand() -> None:
    """d = (2, 1, 3) and U = (1, 2, 3): ranks (2, 1, 3) and (1, 2, 3).

    ρ = 1 − 6·(1 + 1 + 0)/(3·8) = 0.5. The error is √((1 + 1 + 0)/14). The best scale is
    (2 + 2 + 9)/(4 + 1 + 9) = 13/14, which leaves ‖U‖² − 13²/14 = 14 − 169/14 = 27/14.
    """
    found = agreement(matrix(2.0, 1.0, 3.0), EXACT, matrix(3.0, 2.0, 1.0))
    assert found.spearman == pytest.approx(0.5)
    assert found.error == pytest.approx(np.sqrt(2 / 14))
    assert found.stress == pytest.approx(np.sqrt(27 / 14 / 14))
    assert found.value == pytest.approx(-0.5)  # (2, 1, 3) against (3, 2, 1): 1 − 6·6/24


def test_the_diagonal_does_not_count() -> None:
    learned = EXACT + 100 * np.eye(3)
    found = agreement(learned, EXACT, EXACT)
    assert (found.spearman, found.error, found.spread) == (1.0, 0.0, 1.0)
    assert found.self_distance == pytest.approx(100.5)


def test_a_collapsed_distance_has_no_spread_and_no_order() -> None:
    found = agreement(np.ones((3, 3)), EXACT, EXACT)
    assert (found.spread, found.spearman, found.value) == (0.0, 0.0, 0.0)
    nothing = agreement(np.zeros((3, 3)), EXACT, EXACT)
    assert (nothing.stress, nothing.error) == (1.0, 1.0)


def test_neighbours_of_a_larger_set() -> None:
    x = np.arange(12.0)
    line = np.abs(x[:, None] - x)
    assert agreement(line, line, line).overlap == 1.0
    shuffled = np.random.default_rng(0).permutation(12)
    assert agreement(line[shuffled][:, shuffled], line, line).overlap < 0.8


def test_a_distance_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="the learned distances must be finite, but 2 of its"):
        agreement(matrix(np.nan, 1.0, 2.0), EXACT, EXACT)


FACTORS = {"first": np.repeat(np.arange(4), 16), "second": np.tile(np.repeat(np.arange(4), 4), 4)}
FACTORS |= {"third": np.tile(np.arange(4), 16)}


def test_shares_of_factors_by_hand() -> None:
    """Columns 2·first and second: variances 4 · 1.25 and 1.25, so shares of .8 and .2."""
    z = np.stack([2.0 * FACTORS["first"], FACTORS["second"]], axis=1)
    found = factor_shares(z, FACTORS)
    assert found == pytest.approx({"first": 0.8, "second": 0.2, "third": 0.0})
    assert set(factor_shares(np.ones((64, 2)), FACTORS).values()) == {0.0}
    together = (FACTORS["first"] ^ FACTORS["second"])[:, None] * 1.0  # neither alone tells of it
    assert factor_shares(together, FACTORS)["first"] == pytest.approx(0.0)


def test_factors_are_read_if_their_share_is_not_small() -> None:
    """Both as indicators in 50 dimensions, then with the second a hundredth of the size."""
    one_hot = [np.eye(4)[FACTORS[name]] for name in ("first", "second")]
    read = []
    for size in (1.0, 0.01):
        z = np.zeros((64, 50))
        z[:, :4], z[:, 4:8] = one_hot[0], size * one_hot[1]
        read.append(factor_probes(z, FACTORS, np.random.default_rng(0)))
    assert read[0]["first"] > 0.7 and read[0]["second"] > 0.7
    assert read[1]["first"] > 0.7 and read[1]["second"] < 0.1
    assert read[0]["third"] < 0.1 and read[1]["third"] < 0.1
    constant = factor_probes(np.ones((64, 3)), FACTORS, np.random.default_rng(0))
    assert set(constant.values()) == {0.0}
