from typing import Any

import pytest
from tests.sweep.grids import evaluations, small_grid


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What the runs of the small grid write when each is trained alone, in this process."""
    from revbis.runs.run import train

    configs = small_grid().configs(tmp_path_factory.mktemp("alone"))
    for config in configs:
        assert train(config.with_settings(threads=1))
    return evaluations(configs)


@pytest.fixture
def held(tmp_path_factory, monkeypatch):
    """A file that keeps the runs of the small grid in their middle until it is removed."""
    path = tmp_path_factory.mktemp("held") / "held"
    path.touch()
    monkeypatch.setenv("HELD_WALK", str(path))
    return path
