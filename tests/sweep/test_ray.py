"""Real sweeps on Ray's own multi-node test cluster, on this machine."""

import gc
import json
import os
import signal
import time
from pathlib import Path

import pytest
from tests.sweep.grids import evaluations, small_grid
from tests.sweep.tasks import MARKER

from revbis.sweep import driver
from revbis.sweep.driver import Sweep, SweepStorage

pytest.importorskip("ray", reason="needs Ray: pip install 'revbis[sweep]'")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.env("gym", gl=False),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of Ray's own files and processes
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
HEAD = {"num_cpus": 1, "include_dashboard": False, "dashboard_agent_listen_port": None}


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    """One cluster for all tests; its processes know the files that hold and tell of runs."""
    folder = tmp_path_factory.mktemp("machines")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HELD_WALK", str(folder / "held"))
        patch.setenv(MARKER, str(folder / "marker"))
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # stays on the loopback
        patch.setenv("RAY_worker_niceness", "0")  # else a busy machine starves the runs
        patch.setenv("RAY_memory_monitor_refresh_ms", "0")  # else it kills runs on a full one
        from ray.cluster_utils import Cluster

        made = Cluster(initialize_head=True, head_node_args=HEAD)
        made.second = made.add_node(num_cpus=1)
        yield made
        made.shutdown()
        del made
        gc.collect()  # so that what Ray left open is not a warning in another test


@pytest.fixture
def cluster(machines, monkeypatch):
    """Two nodes with one core each, the first is the head."""
    monkeypatch.setattr(driver, "_BACK_OFF_SECONDS", 0.1)
    if machines.second not in machines.worker_nodes:  # killed by the test before
        machines.second = machines.add_node(num_cpus=1)
    return machines


@pytest.fixture
def held(cluster):
    """A file that keeps the runs of the small grid in their middle until it is removed."""
    path = Path(os.environ["HELD_WALK"])
    path.touch()
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
def marker(cluster):
    """The file that tells that a run of the task Stuck stands still."""
    path = Path(os.environ[MARKER])
    path.unlink(missing_ok=True)
    return path


def _configs(out):
    return [c.with_settings(threads=1) for c in small_grid().configs(out)]


def _runner(cluster, storage):
    from revbis.sweep.ray import RayRunner, Request

    return RayRunner(cluster.address, Request(1, 0, 200_000_000), storage)


def test_a_node_that_is_killed_costs_nothing_but_time(alone, cluster, tmp_path, held):
    storage = SweepStorage(str(tmp_path))
    sweep, runner = Sweep(_configs(tmp_path), storage), _runner(cluster, storage)
    killed = []

    def kill_in_the_middle(entries):
        running = all(entry.state == "running" for entry in entries)
        if not killed and running and all(storage.checkpoint(entry.name) for entry in entries):
            killed.append(cluster.second)
            cluster.remove_node(cluster.second, allow_graceful=False)
            held.unlink()

    sweep.run(runner, kill_in_the_middle, lambda: False)
    assert killed, "both nodes never had a run in the middle"
    assert sweep.complete, [entry.text for entry in sweep.entries]
    assert sorted(entry.attempts for entry in sweep.entries) == [1, 2]
    for entry in sweep.entries:  # the node's fault, not the run's
        assert not (tmp_path / entry.name / "failures.json").exists()
    assert evaluations(_configs(tmp_path)) == alone


def test_storage_at_a_url_and_a_worker_that_is_killed(alone, cluster, tmp_path, held):
    """Runs are made in folders of their own and copied; a killed worker is taken up from there."""
    url = f"file://{tmp_path}/shared"
    storage = SweepStorage(url)
    configs = _configs(Path())[:1]
    sweep, runner = Sweep(configs, storage), _runner(cluster, storage)
    killed = []

    def kill_a_worker(entries):
        for entry in entries:
            if not killed and storage.checkpoint(entry.name):
                claim = tmp_path / "shared" / entry.name / "attempts" / "attempt-0001.json"
                killed.append(entry.name)
                os.kill(json.loads(claim.read_text())["process"], signal.SIGKILL)
                held.unlink()

    sweep.run(runner, kill_a_worker, lambda: False)
    assert killed and sweep.complete, [entry.text for entry in sweep.entries]
    failures = storage.failures(killed[0])
    assert [failure["checkpoint"] > 0 for failure in failures] == [True]
    there = [config.with_settings(out=tmp_path / "shared") for config in configs]
    assert evaluations(there).items() <= alone.items()


def test_a_stop_saves_what_runs(alone, cluster, tmp_path, held):
    storage = SweepStorage(str(tmp_path))
    configs = _configs(tmp_path)[1:]
    sweep = Sweep(configs, storage)
    seen = []

    def look(entries):
        if all(storage.checkpoint(entry.name) for entry in entries):
            seen.extend(storage.progress(entry.name).beat for entry in entries)

    sweep.run(_runner(cluster, storage), look, lambda: bool(seen))
    assert seen and not sweep.complete
    saved = [storage.checkpoint(entry.name) for entry in sweep.entries]
    assert all(after >= before for after, before in zip(saved, seen, strict=True)), (saved, seen)
    held.unlink()
    again = Sweep(configs, storage)
    again.run(_runner(cluster, storage), lambda entries: None, lambda: False)
    assert again.complete
    assert evaluations(configs).items() <= alone.items()


def test_a_run_that_stands_still_has_failed_and_is_taken_up_again(
    cluster, marker, tmp_path, monkeypatch
):
    storage, until = SweepStorage(str(tmp_path)), time.monotonic() + 300
    grid = small_grid("tests.sweep.tasks:Stuck", methods=["drqv2"])
    sweep = Sweep([c.with_settings(threads=1) for c in grid.configs(tmp_path)], storage)
    texts = []

    def look(entries):
        [entry] = entries
        texts.append(entry.text)
        stuck = marker.exists() and entry.state == "running" and entry.attempts == 1
        monkeypatch.setattr(driver, "_STALL_SECONDS", -1.0 if stuck else 1e6)

    sweep.run(_runner(cluster, storage), look, lambda: time.monotonic() > until)
    [entry] = sweep.entries
    assert sweep.complete and entry.attempts == 2, texts
    [failure] = storage.failures(entry.name)
    assert "no progress" in failure["text"]
