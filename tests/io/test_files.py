"""Files that are whole or not there."""

import os
from pathlib import Path

import pytest

from revbis.io.files import atomic_write


@pytest.mark.skipif("sys.platform != 'linux'", reason="needs /proc")
def test_a_file_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch) -> None:
    path, steps = tmp_path / "result.json", []
    replace = Path.replace

    def sync(descriptor: int) -> None:
        synced = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        steps.append("folder" if synced == tmp_path else synced.read_bytes())

    def rename(source: Path, target: Path) -> Path:
        steps.append(target.name)
        return replace(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", rename)
    atomic_write(path, b"all of it")
    assert steps == [b"all of it", "result.json", "folder"]


def test_what_fails_leaves_the_old_file(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "result.json"
    atomic_write(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*result\.json"):
        atomic_write(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]
