import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from revbis.objectives import (
    energy_distance,
    l1_distance,
    l2_distance,
    mico_distance,
    normalise,
    simsr_distance,
)
from revbis.tabular import revised
from revbis.tabular.examples import garnet

DISTANCES = [mico_distance, simsr_distance, energy_distance, l1_distance, l2_distance]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def naive_mico(x: torch.Tensor, y: torch.Tensor, beta: float = 0.1) -> float:
    """Eq. 4 for two vectors, as the paper's pseudocode computes the angle."""
    cosine = float(x @ y / (x.norm() * y.norm()).clamp_min(1e-300))
    cosine = min(max(cosine, 0.0001), 0.9999)
    angle = math.atan2(math.sqrt(1 - cosine**2), cosine)
    return float((x.norm() + y.norm()) / 2) + beta * angle


def naive_simsr(x: torch.Tensor, y: torch.Tensor) -> float:
    return 1 - float(x @ y / (x.norm() * y.norm()).clamp_min(1e-300))


def naive_energy(x: torch.Tensor, y: torch.Tensor) -> float:
    own = [math.log1p(math.exp(float(v[-1]))) for v in (x, y)]
    return sum(own) / 2 + float(((x[:-1] - y[:-1]) ** 2).sum())


@given(n=st.integers(1, 6), m=st.integers(1, 6), d=st.integers(1, 9), seed=st.integers(0, 999))
@settings(deadline=None, max_examples=40)
def test_all_pairs_equal_the_formula_pair_by_pair(n: int, m: int, d: int, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=g, dtype=torch.float64)
    y = torch.randn(m, d, generator=g, dtype=torch.float64)
    mico, simsr = mico_distance(x, y), simsr_distance(x, y)
    assert mico.shape == simsr.shape == (n, m)
    for i in range(n):
        for j in range(m):
            assert float(mico[i, j]) == pytest.approx(naive_mico(x[i], y[j]), abs=1e-9)
            assert float(simsr[i, j]) == pytest.approx(naive_simsr(x[i], y[j]), abs=1e-9)
            energy = float(energy_distance(x, y)[i, j])
            assert energy == pytest.approx(naive_energy(x[i], y[j]), abs=1e-9)
            l1 = float((x[i] - y[j]).abs().sum())
            assert float(l1_distance(x, y)[i, j]) == pytest.approx(l1, abs=1e-9)
            l2 = math.sqrt(float(((x[i] - y[j]) ** 2).sum()))
            assert float(l2_distance(x, y)[i, j]) == pytest.approx(l2, abs=1e-9)


@pytest.mark.parametrize("distance", DISTANCES)
def test_rowwise_is_the_diagonal_of_all_pairs(distance) -> None:
    x, y = torch.randn(2, 7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(distance(x, y, rowwise=True), distance(x, y).diagonal())


def hard_cases(dtype: torch.dtype) -> torch.Tensor:
    """Equal, zero, opposite, huge, tiny, subnormal and ordinary rows."""
    info = torch.finfo(dtype)
    one = torch.ones(4, dtype=torch.float64)
    rows = [0 * one, one, one, -one, one * info.max / 4, one * info.tiny, one * info.tiny / 16]
    return torch.stack([*rows, torch.arange(4) - 1.5]).to(dtype).requires_grad_()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("distance", [d for d in DISTANCES if d is not l1_distance])
@pytest.mark.parametrize("rowwise", [False, True])
def test_values_and_gradients_are_finite_in_hard_cases(distance, dtype, rowwise) -> None:
    x = hard_cases(dtype)
    d = distance(x, x, rowwise=rowwise)
    d.sum().backward()
    assert d.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert torch.isfinite(d).all()
    assert torch.isfinite(x.grad).all()
    assert d.min() >= 0


def test_gradients_agree_with_finite_differences() -> None:
    g = torch.Generator().manual_seed(1)
    x = torch.randn(4, 3, dtype=torch.float64, generator=g).requires_grad_()
    y = torch.randn(5, 3, dtype=torch.float64, generator=g).requires_grad_()
    for distance in DISTANCES:
        assert torch.autograd.gradcheck(distance, (x, y))


def test_normalised_mico_lives_between_1_and_1_plus_a_right_angle() -> None:
    x = normalise(torch.randn(50, 6, generator=torch.Generator().manual_seed(2)))
    d = mico_distance(x, x)
    assert 1 <= d.min() < d.max() <= 1 + 0.05 * math.pi + 1e-6


def test_any_negative_type_matrix_is_an_energy_distance() -> None:
    """The exact revised metric of an MDP is reproduced by coordinates and self-distances."""
    mdp, policy = garnet(7, 3, 3, seed=0)
    U = torch.tensor(revised(mdp, policy, 0.9).matrix())
    centring = torch.eye(7) - 1 / 7
    values, vectors = torch.linalg.eigh(-centring.double() @ U @ centring.double() / 2)
    places = vectors * values.clamp_min(0).sqrt()
    last = torch.log(torch.expm1(U.diagonal()))[:, None]
    x = torch.cat([places, last], dim=1)
    assert torch.allclose(energy_distance(x, x), U, atol=1e-8)


def test_simsr_of_equal_opposite_and_zero_vectors() -> None:
    x = torch.tensor([[1.0, 0.0], [-2.0, 0.0], [0.0, 0.0]])
    assert simsr_distance(x, x).tolist() == [[0, 2, 1], [2, 0, 1], [1, 1, 1]]


def test_autocast_does_not_lower_the_precision() -> None:
    x = torch.randn(64, 50, generator=torch.Generator().manual_seed(3))
    plain = simsr_distance(x, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(simsr_distance(x, x), plain)
        assert mico_distance(x, x).dtype == torch.float32
        assert energy_distance(x, x).dtype == torch.float32


def test_no_three_dimensional_temporary() -> None:
    """Nothing autograd keeps for the backward pass is larger than the [N, M] result."""
    sizes = []
    x = torch.randn(40, 60, requires_grad=True)
    y = torch.randn(50, 60, requires_grad=True)
    for distance in DISTANCES:
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t: sizes.append(t.numel()) or t, lambda t: t
        ):
            distance(x, y)
    assert max(sizes) <= 50 * 60
