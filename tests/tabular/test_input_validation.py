"""Every invalid argument of the exact metrics gets an error that names it."""

import io
import struct
import warnings
import zipfile
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from revbis import tabular
from revbis.tabular import FiniteMDP, examples
from revbis.tabular.readers import read_npy, read_npz

P = np.full((2, 1, 2), 0.5)
R = np.zeros((2, 1))
TOY = examples.toy()


@pytest.fixture(autouse=True)
def _no_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize(
    ("p", "r", "message"),
    [
        (P.astype(complex), R, "P .* must hold real numbers, got complex numbers"),
        (P.astype(object), R, "got dtype object"),
        (P.astype(str), R, "got texts"),
        (np.ones((1, 1, 1), bool), [[0.0]], "got booleans"),
        ([[[1.0], [1.0, 2.0]]], R, "rows of equal length"),
        ([], R, "P must be an"),
        (None, R, "must hold real numbers, got None"),
        ("P", R, "got texts"),
        (-P, R, "is negative"),
        ([sp.eye(2).astype(complex)], R, r"P\[0\] must hold real numbers, got dtype complex128"),
        ([sp.eye(2, dtype=bool)], R, r"P\[0\] must hold real numbers, got dtype bool"),
        (np.array([[2**63]], dtype=np.uint64), [[0.0]], "is not a state"),
        (P, R.astype(complex), "R, of shape .* must hold real numbers, got complex"),
        (P, R.astype(bool), "R, of .* got booleans"),
        (P, [["1"], ["2"]], "R, of .* got texts"),
        (P, [[1.0], [1.0, 2.0]], "R, of .* rows of equal length"),
        (P, [[Fraction(1)], [1]], "R, of .* got dtype object"),
        (P, np.zeros((2, 1), "m8[s]"), "R, of .* got dtype timedelta64"),
        (P, [[1e200], [0]], r"R\[0, 0\] = 1e\+200 is larger than 1e\+100"),
    ],
)
def test_arrays_of_the_wrong_kind(p: Any, r: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FiniteMDP(p, r)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask": [[True], [True, False]]}, "mask must be booleans"),
        ({"mask": [[1], [1]]}, "mask must be booleans"),
        ({"grid": [[0, 1], [0]]}, "grid must be .* integers"),
        ({"grid": []}, "grid must be .* integers"),
    ],
)
def test_mask_and_grid(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FiniteMDP(P, R, **options)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1, 1, "x", None, 1j, [0.9], 10**400])
def test_discounts(value: Any) -> None:
    for call in (
        lambda: tabular.revised(*TOY, value),
        lambda: tabular.policy_value(*TOY, value),
        lambda: tabular.optimal_policy(TOY.mdp, value),
        lambda: tabular.action_value(TOY.mdp, np.zeros(3), value),
    ):
        with pytest.raises(ValueError, match="gamma must be"):
            call()


@pytest.mark.parametrize("value", [np.nan, np.inf, 0, -1, "x", None, 1j, 10**400])
def test_tolerances(value: Any) -> None:
    with pytest.raises(ValueError, match="tol must be"):
        tabular.revised(*TOY, 0.9, tol=value)


@pytest.mark.parametrize("value", [np.nan, 1, "abc", [0.1, np.nan], [[0.1]], [], {0.1}, 1j])
def test_coefficients(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^c(\[\d\])? (must be|is an empty)"):
        tabular.revised(*TOY, 0.9, c=value)


@pytest.mark.parametrize(
    "policy", ["uniform", [0, 1], [[0.5, 0.5], [1]], TOY.policy.astype(complex), [True] * 3, 3]
)
def test_policies(policy: Any) -> None:
    with pytest.raises(ValueError, match=r"^policy must"):
        tabular.revised(TOY.mdp, policy, 0.9)


@pytest.mark.parametrize("other", [None, "toy", 3, TOY.policy])
def test_what_is_no_mdp_or_no_result(other: Any) -> None:
    for metric in tabular.METRICS:
        with pytest.raises(ValueError, match="mdp must be a FiniteMDP, got"):
            tabular.solve(metric, other, TOY.policy, 0.9)
    for call in (
        lambda: tabular.policy_value(other, TOY.policy, 0.9),
        lambda: tabular.action_value(other, np.zeros(3), 0.9),
        lambda: tabular.optimal_policy(other, 0.9),
        lambda: tabular.certify(other, TOY.policy, np.eye(3), "revised", 0.9),
    ):
        with pytest.raises(ValueError, match="mdp must be a FiniteMDP, got"):
            call()
    for call in (
        lambda: tabular.aggregate(other, 0.1),
        lambda: tabular.value_gap_bound(other),
        lambda: tabular.compare(np.eye(3), other),
    ):
        with pytest.raises(ValueError, match="expected a MetricResult, as returned by solve"):
            call()


def test_indices_of_results() -> None:
    result = tabular.revised(*TOY, 0.9)
    for i, j, message in (
        (0.5, 1, "i must hold integers"),
        ([0, 1], [0, 1, 2], "i and j must broadcast"),
        ([[0], [0, 1]], 0, "i must be an array"),
        (None, 0, "i must hold real numbers, got None"),
        (3, 0, "i must be in 0..2"),
    ):
        with pytest.raises(ValueError, match=message):
            result.pairs(i, j)
    for row in ("x", [0, 1], -1, 1.5):
        with pytest.raises(ValueError, match=r"^i must be"):
            result.row(row)  # type: ignore[arg-type]
    for dimension in ("x", 1.5, 0, 10**12):
        with pytest.raises(ValueError, match="dimension must be"):
            result.embedding(dimension)  # type: ignore[arg-type]
    for eps in ("x", -1, np.nan, None):
        with pytest.raises(ValueError, match="eps must be"):
            tabular.aggregate(result, eps)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="progress must be a function or None"):
        tabular.revised(*TOY, 0.9, progress=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, -1, 1.5, "x", None, np.nan, 10**23, [3]])
def test_sizes_of_examples(size: Any) -> None:
    makers = (
        (examples.grid_world, "rows must be"),
        (examples.four_rooms, "size must be"),
        (examples.garnet, "n_states must be"),
        (examples.delay_chain, "steps must be"),
        (lambda n: examples.garnet(20, n_actions=n), "n_actions must be"),
        (lambda n: examples.garnet(20, branching=n), "branching must be"),
    )
    for make, message in makers:
        with pytest.raises(ValueError, match=message):
            make(size)


def test_other_arguments_of_examples() -> None:
    for slip in (np.nan, "x", None, 2, -1, 1j):
        with pytest.raises(ValueError, match="slip must be"):
            examples.grid_world(3, slip=slip)
    for walls in (3, ["x"], [(0, 0, 0)], [(0.5, 0.5)]):
        with pytest.raises(ValueError, match=r"walls must be|a cell must be \(row, column\)"):
            examples.grid_world(3, walls=walls)  # type: ignore[arg-type]
    for goal in (3, "x", (0,), (0.5, 1)):
        with pytest.raises(ValueError, match=r"a cell must be \(row, column\)"):
            examples.grid_world(3, goal=goal)  # type: ignore[arg-type]
    for seed in (None, -1, 1.5, "x"):
        with pytest.raises(ValueError, match="seed must be"):
            examples.garnet(5, seed=seed)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the number of cells must be at most 10,000,000"):
        examples.grid_world(10**6, 10**6)


@pytest.mark.parametrize(
    "table",
    [
        {0: 3},
        {},
        {"a": {0: [(1.0, 0, 0.0, False)]}},
        {0: {0: [(1.0, 0, 0.0)]}},
        {0: {0: [(1.0, 5, 0.0, False)]}},
        {0: {5: [(1.0, 0, 0.0, False)]}},
        {5: {0: [(1.0, 0, 0.0, False)]}},
    ],
)
def test_transition_tables(table: Any) -> None:
    with pytest.raises(ValueError, match=r"P\[state\]\[action\] must list"):
        FiniteMDP.from_gymnasium(SimpleNamespace(P=table))


def test_transitions_that_would_fill_memory() -> None:
    with pytest.raises(MemoryError, match="number them consecutively from 0"):
        FiniteMDP.from_transitions([10**15], [0], [0.0], [0])
    with pytest.raises(ValueError, match="n_states must be a whole number"):
        FiniteMDP.from_transitions([0], [0], [0.0], [0], n_states=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="s must be 1-D integers"):
        FiniteMDP.from_transitions([0.0], [0], [0.0], [0])


def npy(shape: tuple[int, ...], data: bytes) -> bytes:
    """An array's file that may say another shape than it holds."""
    header = repr({"descr": "<f8", "fortran_order": False, "shape": shape}).encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def archive(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


def test_files_that_promise_more_than_they_hold(tmp_path: Path) -> None:
    path = archive(tmp_path / "false.npz", P=npy((10**12, 10**5), b"12345678"))
    with pytest.raises(ValueError, match=r"false.npz is not .*P.npy should hold \(1000000000000"):
        FiniteMDP.load(path)
    plain = tmp_path / "false.npy"
    plain.write_bytes(npy((10**12,), b"12345678"))
    with pytest.raises(ValueError, match=r"false.npy is not a .npy file of plain numbers"):
        read_npy(plain)


def test_files_that_unpack_to_more_than_memory_holds(tmp_path: Path, monkeypatch) -> None:
    path = archive(tmp_path / "bomb.npz", P=npy((10**5,), bytes(8 * 10**5)))
    assert path.stat().st_size < 5000
    assert read_npz(path)["P"].shape == (10**5,)
    monkeypatch.setattr("revbis.tabular.readers.available_bytes", lambda: 700_000)
    with pytest.raises(ValueError, match=r"it unpacks to 0.0 GB"):
        read_npz(path)


def test_pickles_and_other_foreign_files(tmp_path: Path) -> None:
    pickled = io.BytesIO()
    np.save(pickled, np.array([{}], dtype=object), allow_pickle=True)
    path = archive(tmp_path / "objects.npz", P=pickled.getvalue())
    with pytest.raises(ValueError, match=r"P.npy holds Python objects; expected arrays of numbers"):
        FiniteMDP.load(path)
    deep = b"\x93NUMPY\x01\x00" + struct.pack("<H", 9000) + b"(" * 9000
    for content in (b"", b"text", b"PK\x03\x04", pickled.getvalue(), deep):
        foreign = tmp_path / "foreign.npz"
        foreign.write_bytes(content)
        with pytest.raises(ValueError, match=r"foreign.npz is not"):
            FiniteMDP.load(foreign)
        with pytest.raises(ValueError, match=r"foreign.npz is not a .npy"):
            read_npy(foreign)
    with pytest.raises(ValueError, match=r"deep.npz is not a readable"):
        FiniteMDP.load(archive(tmp_path / "deep.npz", P=deep))
    with pytest.raises(ValueError, match="an archive of several arrays"):
        read_npy(path)
