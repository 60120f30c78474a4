import pytest


@pytest.fixture
def held(tmp_path_factory, monkeypatch):
    """A file that keeps the runs of the small grid in their middle until it is removed."""
    path = tmp_path_factory.mktemp("held") / "held"
    path.touch()
    monkeypatch.setenv("HELD_WALK", str(path))
    return path
