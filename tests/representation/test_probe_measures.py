"""Measures of agreement, on distances small enough to work out by hand."""

import numpy as np
import pytest
import torch

from revbis.representation.measures import agreement, denoising_factor, rank_correlation


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


def test_rank_correlation_with_a_constant_is_zero() -> None:
    assert rank_correlation(np.ones(4), np.arange(4.0)) == 0.0


def test_denoising_factors_of_extremes() -> None:
    generator = torch.Generator().manual_seed(0)
    clean = torch.randn(20, 5, generator=generator)
    same = clean.expand(16, 20, 5)
    assert denoising_factor(clean, same, generator) == 1.0
    noise = torch.randn(17, 20, 5, generator=generator)
    assert abs(denoising_factor(noise[0], noise[1:], generator)) < 0.1
    assert denoising_factor(torch.zeros(20, 5), torch.zeros(16, 20, 5), generator) == 0.0


def test_a_denoising_factor_by_hand() -> None:
    """Two states at 0 and 10, seen again at 1 and 11: Pos = 1, Neg = (11 + 9)/2 = 10."""
    anchors, again = torch.tensor([[0.0], [10.0]]), torch.tensor([[[1.0], [11.0]]])
    assert denoising_factor(anchors, again, torch.Generator()) == pytest.approx(9 / 11)
