import contextlib
import gc
import warnings
import zipfile

import numpy as np
import pytest
from hypothesis import given

from revbis.tabular import FiniteMDP, examples
from tabular.strategies import few, mdps
from tabular.test_mdp import MASK, STEPS, P, R, assert_same


@few(10)
@given(case=mdps())
def test_round_trip_of_random_mdps(case, tmp_path_factory):
    path = tmp_path_factory.mktemp("mdp") / "mdp.npz"
    case[0].save(path)
    loaded = FiniteMDP.load(path)
    assert np.allclose(
        loaded.transitions.toarray(), case[0].transitions.toarray(), rtol=1e-15, atol=0
    )
    assert np.array_equal(loaded.rewards, case[0].rewards)
    assert np.array_equal(loaded.available, case[0].available)


def test_round_trip_keeps_mask_and_grid(tmp_path):
    mdp = FiniteMDP(STEPS, R, mask=MASK, grid=[[0, 0], [1, 2], [3, 4]])
    mdp.save(str(tmp_path / "mdp.npz"))
    assert_same(FiniteMDP.load(str(tmp_path / "mdp.npz")), mdp)


def test_save_overwrites_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "any name"
    examples.toy().mdp.save(path)
    FiniteMDP(STEPS, R).save(path)
    assert_same(FiniteMDP.load(path), FiniteMDP(STEPS, R))
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "mdp.npz"
    FiniteMDP(STEPS, R).save(path)

    def full_disk(file, **arrays):
        file.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez_compressed", full_disk)
    with pytest.raises(OSError, match="no space left"):
        examples.toy().mdp.save(path)
    assert_same(FiniteMDP.load(path), FiniteMDP(STEPS, R))
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("form", [P, STEPS])
@pytest.mark.parametrize(
    "more", [{}, {"mask": MASK}, {"grid": np.array([[0, 0], [0, 1], [0, 2]]), "mask": MASK}]
)
def test_plain_arrays_are_read(tmp_path, form, more):
    np.savez(tmp_path / "mdp.npz", P=form, R=R, **more)
    assert_same(FiniteMDP.load(tmp_path / "mdp.npz"), FiniteMDP(STEPS, R, **more))


def test_missing_file(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere\.npz: no such file"):
        FiniteMDP.load(tmp_path / "nowhere.npz")


@pytest.mark.parametrize("content", [b"", b"no zip at all", b"PK\x03\x04 cut off"])
def test_what_is_no_npz(tmp_path, content):
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.npz is not a readable \.npz of plain arrays"):
        FiniteMDP.load(tmp_path / "x.npz")


def test_a_directory_is_no_npz(tmp_path):
    with pytest.raises(ValueError, match="is not a readable"):
        FiniteMDP.load(tmp_path)


@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
def test_truncated_file(tmp_path, share):
    path = tmp_path / "x.npz"
    FiniteMDP(STEPS, R).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(ValueError, match="is not a readable"):
        FiniteMDP.load(path)


def test_a_truncated_file_is_closed(tmp_path):
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 cut off")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with contextlib.suppress(ValueError):
            FiniteMDP.load(tmp_path / "x.npz")
        gc.collect()
    assert [str(w.message) for w in caught] == []


def test_flipped_bits(tmp_path):
    path = tmp_path / "x.npz"
    examples.garnet(30, seed=0).mdp.save(path)
    raw = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo("probabilities.npy").header_offset
    raw[start + 100 : start + 400] = bytes(b ^ 0xFF for b in raw[start + 100 : start + 400])
    path.write_bytes(raw)
    with pytest.raises(ValueError, match="is not a readable"):
        FiniteMDP.load(path)


def test_any_flipped_byte_of_the_directory(tmp_path):
    path = tmp_path / "x.npz"
    FiniteMDP(STEPS, R).save(path)
    raw = path.read_bytes()
    for where in range(raw.index(b"PK\x01\x02"), len(raw)):
        path.write_bytes(raw[:where] + bytes([raw[where] ^ 0xFF]) + raw[where + 1 :])
        try:
            assert_same(FiniteMDP.load(path), FiniteMDP(STEPS, R))
        except ValueError as error:
            assert "x.npz" in str(error)  # noqa: PT017 - some bytes do not matter


def test_a_policy_is_kept_beside_the_mdp(tmp_path):
    mdp, policy = examples.toy()
    mdp.save(tmp_path / "x.npz", policy)
    with np.load(tmp_path / "x.npz") as file:
        assert file["policy"].tolist() == policy.tolist()
    assert FiniteMDP.load(tmp_path / "x.npz").rewards.tolist() == mdp.rewards.tolist()
    with pytest.raises(ValueError, match="policy must have shape"):
        mdp.save(tmp_path / "y.npz", policy[:2])
    assert not (tmp_path / "y.npz").exists()


def test_an_npy_is_no_npz(tmp_path):
    np.save(tmp_path / "x.npy", P)
    with pytest.raises(ValueError, match=r"x\.npy is not a readable \.npz"):
        FiniteMDP.load(tmp_path / "x.npy")


def test_the_error_lists_what_a_foreign_npz_holds(tmp_path):
    np.savez(tmp_path / "x.npz", weights=np.ones(3), bias=np.ones(1))
    with pytest.raises(
        ValueError, match=r"holds \['bias', 'weights'\]; expected the output of FiniteMDP"
    ):
        FiniteMDP.load(tmp_path / "x.npz")


def test_empty_npz(tmp_path):
    np.savez(tmp_path / "x.npz")
    with pytest.raises(ValueError, match="holds nothing; expected"):
        FiniteMDP.load(tmp_path / "x.npz")


def test_pickled_objects_are_refused(tmp_path):
    np.savez(tmp_path / "x.npz", P=np.array([{"a": 1}], dtype=object), R=R)
    with pytest.raises(ValueError, match=r"not a readable .* P.npy holds Python objects"):
        FiniteMDP.load(tmp_path / "x.npz")


def test_invalid_plain_arrays_are_refused(tmp_path):
    np.savez(tmp_path / "x.npz", P=P / 2, R=R)
    with pytest.raises(ValueError, match=r"P\[s=0, a=0, :\] sums to 0.5"):
        FiniteMDP.load(tmp_path / "x.npz")


def resaved(tmp_path, **changes):
    """A saved MDP with some of its arrays replaced, or left out when None."""
    path = tmp_path / "x.npz"
    FiniteMDP(STEPS, R, mask=MASK).save(path)
    with np.load(path) as file:
        arrays = {**dict(file), **changes}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def test_wrong_format_number(tmp_path):
    with pytest.raises(ValueError, match="has MDP format 7; this version reads format 1"):
        FiniteMDP.load(resaved(tmp_path, format=np.int64(7)))


def test_format_that_is_no_number(tmp_path):
    with pytest.raises(ValueError, match=r"x\.npz"):
        FiniteMDP.load(resaved(tmp_path, format=np.array(["a", "b"])))


@pytest.mark.parametrize("name", ["rewards", "indptr", "indices", "probabilities", "available"])
def test_missing_part(tmp_path, name):
    with pytest.raises(ValueError, match=f"x.npz is a damaged MDP file: '{name}"):
        FiniteMDP.load(resaved(tmp_path, **{name: None}))


@pytest.mark.parametrize(
    "changes",
    [
        {"rewards": R[0]},
        {"rewards": R[:2]},
        {"indptr": np.array([0, 5])},
        {"indices": np.array([0, 99, 0, 0])},
        {"indices": np.array([0, -1, 0, 0])},
        {"probabilities": np.ones(9)},
        {"indptr": np.array([0, 3, 1, 2, 3, 4, 4])},
    ],
)
def test_damaged_parts(tmp_path, changes):
    with pytest.raises(ValueError, match="is a damaged MDP file"):
        FiniteMDP.load(resaved(tmp_path, **changes))
