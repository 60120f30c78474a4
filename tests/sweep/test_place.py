"""Files in a run's folder may hold anything: never a traceback."""

import json

import pytest
from tests.sweep.grids import small_grid

from revbis.sweep.driver import RunProgress, Sweep, SweepStorage, lock_path
from revbis.sweep.live import summary, table
from revbis.sweep.plan import times_left

FILES = ("progress.json", "result.json", "failures.json")
ANYTHING = [
    b"",
    b"[]",
    b"[1]",
    b"{half",
    b"null",
    b"3",
    b'"text"',
    b"NaN",
    b"\xff\xfe\x00",
    b"[" * 200_000,
    b'{"a":' * 200_000,
    b'{"frames": "many", "failures": "none"}',
    b'{"frames": [1], "failures": [1]}',
    b'{"frames": {}, "failures": [{}], "mean_return": {}}',
    b'{"frames": -5, "mean_return": 1.0, "failures": [{"checkpoint": -1, "text": "x"}]}',
    b'{"frames": 1e400, "mean_return": 1.0, "failures": [{"checkpoint": 1e400, "text": "x"}]}',
    b'{"frames": NaN, "mean_return": NaN, "failures": [{"checkpoint": NaN, "text": "x"}]}',
    b'{"frames": true, "mean_return": true, "failures": [{"checkpoint": 1, "text": 7}]}',
    b'{"frames": 1' + b"0" * 5000 + b"}",
    b'{"frames": 100000000000000000000000, "mean_return": 0.0}',
    b'{"failures": [[[[[[]]]]]]}',
]


@pytest.fixture
def run(tmp_path):
    storage = SweepStorage(str(tmp_path))
    config = small_grid().configs(tmp_path)[0]
    folder = tmp_path / storage.name(config)
    folder.mkdir(parents=True)
    return storage, config, folder


@pytest.mark.parametrize("content", ANYTHING, ids=range(len(ANYTHING)))
def test_files_that_are_not_ours_count_as_not_there(run, content):
    storage, config, folder = run
    for file in FILES:
        (folder / file).write_bytes(content)
    sweep = Sweep([config], storage)
    assert sweep.entries[0].state == "waiting"
    assert sweep.entries[0].progress == RunProgress()
    assert storage.failures(storage.name(config)) == []
    assert summary(sweep.entries) and table(sweep.entries, "here", 80)


def test_folders_in_place_of_files_are_passed_over(run):
    storage, config, folder = run
    for file in (*FILES, "checkpoints"):
        (folder / file).mkdir()
    assert Sweep([config], storage).entries[0].progress == RunProgress()
    (folder / "attempts").touch()
    assert storage.checkpoint(storage.name(config)) == storage.claims(storage.name(config)) == 0
    (folder / "checkpoints" / "frame-no").mkdir()
    (folder / "checkpoints" / "frame-000000000300").mkdir()
    assert storage.checkpoint(storage.name(config)) == 300


def test_numbers_that_are_not_finite_are_left_out(run):
    storage, config, folder = run
    name = storage.name(config)
    (folder / "progress.json").write_text(
        '{"frames": 7, "frames_per_second": Infinity, "seconds": NaN, "mean_return": NaN, "c": NaN}'
    )
    assert storage.progress(name) == RunProgress(frames=7, beat=7)
    (folder / "progress.json").write_text(
        '{"frames": 7, "frames_per_second": -1.0, "seconds": 0.0, "mean_return": 2.0, "c": 0.5}'
    )
    assert storage.progress(name) == RunProgress(
        frames=7, mean_return=2.0, status={"c": 0.5}, beat=7
    )
    sweep = Sweep([config], storage)
    assert times_left(sweep.entries, None) == [None]


def test_a_result_counts_until_the_run_has_gone_on_beyond_it(run):
    storage, config, _ = run
    name = storage.name(config)
    progress = {"frames": 100, "frames_per_second": 5.0, "seconds": 9.0, "mean_return": 1.0}
    storage.write(name, "progress.json", progress | {"c": 0.5})
    storage.write(name, "result.json", {"frames": 120, "mean_return": 2.0, "seconds": 10.0})
    before = storage.progress(name)
    assert before == RunProgress(120, 5.0, 10.0, 2.0, {"c": 0.5}, 100)
    storage.write(name, "progress.json", progress | {"frames": 110})
    assert storage.progress(name) != before  # a run that lives is seen to live
    storage.write(name, "progress.json", progress | {"frames": 130})
    assert storage.progress(name) == RunProgress(130, 5.0, 9.0, 1.0, {}, 130)
    assert storage.finished(name, 120) and not storage.finished(name, 121)


def test_failures_are_written_as_they_are_read(run):
    storage, config, folder = run
    failures = [{"checkpoint": 0, "text": "a"}, {"checkpoint": 9, "text": "b", "final": True}]
    storage.write_failures(storage.name(config), failures)
    assert storage.failures(storage.name(config)) == failures
    assert json.loads((folder / "failures.json").read_text()) == {"failures": failures}


def test_a_config_is_read_or_refused(run):
    storage, config, folder = run
    name = storage.name(config)
    assert storage.config(name) is None
    storage.write(name, "config.json", config.as_dict())
    assert storage.config(name) == config
    for content in ANYTHING[:-1]:
        (folder / "config.json").write_bytes(content)
        with pytest.raises(ValueError, match=r"config\.json is not a revbis config"):
            storage.config(name)


def test_a_config_of_an_earlier_version_is_read(run):
    storage, config, _ = run
    values = config.as_dict()
    del values["precision"]
    storage.write(storage.name(config), "config.json", values | {"mixed_precision": False})
    assert storage.config(storage.name(config)) == config


def test_names_are_the_same_on_a_path_and_at_a_url(tmp_path):
    [on_path] = small_grid(methods=["drqv2"]).configs(tmp_path)
    [at_url] = small_grid(methods=["drqv2"]).configs(tmp_path.relative_to(tmp_path))
    url = f"file://{tmp_path}/"
    assert SweepStorage(str(tmp_path)).name(on_path) == SweepStorage(url).name(at_url)
    assert SweepStorage(url).folder("a/b") == f"file://{tmp_path}/a/b"
    assert SweepStorage(str(tmp_path)).folder("a/b") == f"{tmp_path}/a/b"


def test_the_lock_is_in_the_folder_or_this_machines(tmp_path):
    assert lock_path(str(tmp_path)) == tmp_path / ".sweep.lock"
    first, second = lock_path("s3://a/b"), lock_path("s3://a/c")
    assert first != second and first.name.startswith("revbis-sweep-")
