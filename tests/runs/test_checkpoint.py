"""Checkpoints by themselves: what their manifests say, and damaged ones beside the newest."""

import json

import numpy as np
import pytest
from tests.replay import play, small

from revbis.io.files import digest
from revbis.runs.checkpoint import Checkpoints, DamagedError


class Run:
    """A replay buffer that grows from checkpoint to checkpoint."""

    def __init__(self, folder, keep=2):
        self.folder, self.replay = folder, small(100)
        self.checkpoints, self.frames = Checkpoints(folder, keep), 0

    def save(self):
        self.frames += 10
        play([self.replay], np.random.default_rng(self.frames), 10, stop=1.0, first=self.frames)
        return self.checkpoints.save(self.frames, {}, {"replay": self.replay.state()}, self.replay)

    def resumed(self):
        self.checkpoints = Checkpoints(self.folder, self.checkpoints.keep)
        assert self.checkpoints.resume() is not None


def test_a_manifest_lists_every_file_as_it_is(tmp_path):
    run = Run(tmp_path)
    run.save()
    run.save()
    run.resumed()
    folder = run.save()
    files = json.loads((folder / "manifest.json").read_text())["files"]
    pieces = sorted(path.name for path in (tmp_path / "replay").iterdir())
    assert list(files) == ["agent.pt", "state.json", *(f"replay/{name}" for name in pieces)]
    assert len(pieces) == 3
    for name, entry in files.items():
        path = (tmp_path if "/" in name else folder) / name
        assert list(entry.items()) == [("bytes", path.stat().st_size), ("digest", digest(path))]


@pytest.mark.parametrize("resumed", [False, True])
def test_a_piece_is_not_read_again(tmp_path, resumed):
    """Nor is its damage therefore taken for its content."""
    run = Run(tmp_path)
    run.save()
    if resumed:
        run.resumed()
    (piece,) = (tmp_path / "replay").iterdir()
    content = piece.read_bytes()
    piece.write_bytes(content[:-1] + b"X")
    run.save()
    with pytest.raises(DamagedError, match="has changed"):
        run.resumed()
    piece.write_bytes(content)
    run.resumed()


@pytest.mark.parametrize("damage", ["delete", "garble"])
def test_a_damaged_older_checkpoint_stops_nothing(tmp_path, caplog, damage):
    run = Run(tmp_path)
    first, second = run.save(), run.save()
    for _ in range(2):  # of the same frame twice
        if damage == "delete":
            (second / "manifest.json").unlink()
        else:
            (second / "manifest.json").write_text("{")
        third = run.save()
        assert "it is set aside" in caplog.text
        assert not second.exists() and (tmp_path / f"damaged-{second.name}").exists()
        assert first.exists() and third.exists()  # as many are kept as before
        third.rename(second)
    third = run.save()
    run.resumed()
    assert sorted(tmp_path.glob("frame-*")) == [second, third]
