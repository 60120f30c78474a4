"""Files and tables from outside: what they may not do."""

import io
import struct
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from revbis.tabular import FiniteMDP
from revbis.tabular.readers import read_npy, read_npz


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
