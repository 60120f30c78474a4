"""Memory and disk: what is projected, refused and taken."""

import errno
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tests.replay import Naive, assert_same, numbered, play, small

from revbis.io import machine
from revbis.replay import Replay
from revbis.replay import storage as storage_module


def test_a_million_frames_take_at_most_22_gb():
    """Per record: 3·84·84 of frame, 4·6 of action, reward 4, discount 4, age 4, its index 8."""
    projected = Replay.projected_bytes(1_000_000, (3, 84, 84), 6)
    assert projected == 1_000_000 * (21_168 + 24 + 4 + 4 + 4 + 8) <= 22e9


def test_what_does_not_fit_in_memory_is_refused_with_the_flags(monkeypatch):
    monkeypatch.setattr(machine, "available_bytes", lambda: 2_000_000_000)
    message = (
        r"a replay buffer of 1,000,000 frames takes 21.2 GB, but only 2 GB is free; use "
        r"--replay-storage disk or a smaller --replay-capacity \(up to 94,286 fits in memory\)"
    )
    with pytest.raises(MemoryError, match=message):
        Replay(1_000_000, (3, 84, 84), 6)


def test_what_does_not_fit_on_disk_is_refused(monkeypatch, tmp_path):
    usage = (10**10, 10**10, 2_116_800_000)
    fake = type("Usage", (), dict(zip(("total", "used", "free"), usage, strict=True)))
    monkeypatch.setattr(storage_module.shutil, "disk_usage", lambda path: fake)
    message = (
        r"a replay buffer of 1,000,000 frames takes 21.2 GB on disk, but only 2.12 GB is free at "
        r".*; use another directory or a smaller --replay-capacity \(up to 100,000 fits\)"
    )
    with pytest.raises(ValueError, match=message):
        Replay(1_000_000, (3, 84, 84), 6, storage="disk", directory=tmp_path / "not" / "yet")
    assert not (tmp_path / "not").exists()
    Replay(100_000, (3, 84, 84), 6, storage="disk", directory=tmp_path)
    monkeypatch.setattr(machine, "available_bytes", lambda: 1_000_000)
    with pytest.raises(MemoryError, match=r"keeps beside them takes 4.4 MB, but only 1 MB is free"):
        Replay(100_000, (3, 84, 84), 6, storage="disk", directory=tmp_path)


FILL = """
import numpy as np
from revbis.io.machine import resident_bytes
from revbis.replay import Replay
shape, capacity = (3, 84, 84), 4_000
before = resident_bytes()
replay = Replay(capacity, shape, 2)
print(resident_bytes() - before)
frame = np.ones(shape, np.uint8)
replay.begin(frame)
for _ in range(2 * capacity):
    replay.add([0, 0], 0, 1, frame, last=False)
print(resident_bytes() - before, Replay.projected_bytes(capacity, shape, 2))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_memory_is_taken_as_it_is_filled_and_stays_within_the_projection():
    # In a process of its own: what others freed before would be taken without being seen.
    words = [sys.executable, "-c", FILL]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=400)
    empty, full, projected = map(int, done.stdout.split())
    slack = 12_000_000
    assert empty < slack
    assert projected / 2 < full < projected + slack


def test_frames_on_disk_leave_no_file_behind(tmp_path):
    replay = small(storage="disk", directory=tmp_path / "made")
    play([replay], np.random.default_rng(0), 30)
    assert list((tmp_path / "made").iterdir()) == []
    batch = replay.sample(4)
    if Path("/proc/self/fd").exists():
        assert open_below(tmp_path)
    del replay
    assert batch.obs.shape == (4, 6, 2, 3)
    assert open_below(tmp_path) == []


def open_below(folder: Path) -> list[str]:
    """Files below a folder that this process has open, where the system tells."""
    links = []
    for link in Path("/proc/self/fd").glob("*"):
        with suppress(FileNotFoundError):  # the descriptor with which this is read
            links.append(os.readlink(link))
    return [name for name in links if name.startswith(str(folder))]


def test_a_full_disk_is_an_error_one_can_read(monkeypatch, tmp_path):
    replay = small(storage="disk", directory=tmp_path)
    play([replay], np.random.default_rng(0), 10, stop=0.0)

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(storage_module.os, "pwrite", full)
    message = r"could not be written to disk \(No space left on device\); free some space or use"
    with pytest.raises(OSError, match=message) as stopped:
        replay.add([0, 0], 0, 1, numbered(0), last=False)
    assert stopped.value.filename == str(tmp_path)
    assert replay.written == 10 and len(replay) == 7


def test_short_writes_are_completed(monkeypatch, tmp_path):
    whole_write = os.pwrite
    monkeypatch.setattr(
        storage_module.os, "pwrite", lambda f, data, at: whole_write(f, data[:5], at)
    )
    replay, naive = small(storage="disk", directory=tmp_path), Naive(40, 3, 3, 0.9)
    play([replay, naive], np.random.default_rng(0), 90)
    assert_same(replay, naive)
