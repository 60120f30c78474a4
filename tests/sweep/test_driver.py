"""How a sweep decides: what is skipped, resumed, tried again and given up; what it reads."""

import json
from pathlib import Path

import pytest
from tests.sweep.grids import small_grid

from revbis.envs.rendering import RenderingError
from revbis.runs.checkpoint import DamagedError
from revbis.runs.preflight import UnfitMachineError
from revbis.runs.trainer import TrainingFailedError
from revbis.sweep import driver
from revbis.sweep.attempt import Outcome, _is_final
from revbis.sweep.driver import Ended, RunProgress, Sweep, SweepStorage, lock_path
from revbis.sweep.live import summary, table
from revbis.sweep.plan import times_left

FAILED = Outcome("failed", "it broke")


class Script:
    """A runner whose attempts end as told: what comes next for each run, by its name's end.

    Without `begins` they end before they have claimed their run, as if no node had room.
    """

    where = "a script"

    def __init__(self, storage, endings, room=2, *, begins=True):
        self.storage, self.endings, self._room, self._begins = storage, endings, room, begins
        self.running, self.started, self.killed, self.closed = [], [], [], 0
        self.most = 0

    def room(self):
        return self._room - len(self.running)

    def start(self, name, job):
        self.running.append(name)
        self.started.append(name)
        self.most = max(self.most, len(self.running))
        if self._begins:
            number = self.storage.claims(name) + 1
            self.storage.write(f"{name}/attempts", f"attempt-{number:04d}.json", {})

    def ended(self, seconds):
        done, self.running = self.running, []
        endings = []
        for name in done:
            ending = next(self.endings[key] for key in self.endings if key in name)
            outcome, blame, checkpoint = ending.pop(0)
            if outcome is None:
                self.running.append(name)
                continue
            if checkpoint is not None:
                self.storage.write(
                    f"{name}/checkpoints/frame-{checkpoint:012d}", "manifest.json", {}
                )
            endings.append(Ended(name, outcome, blame))
        return endings

    def kill(self, name):
        self.killed.append(name)

    def close(self):
        self.closed += 1


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "_BACK_OFF_SECONDS", 0.0)
    configs = small_grid(seeds=[1, 2]).configs(tmp_path)
    return configs, SweepStorage(str(tmp_path))


def _run(configs, storage, endings, stop=lambda: False, **options):
    sweep, runner = Sweep(configs, storage, **options), Script(storage, endings)
    shown = []
    sweep.run(runner, lambda entries: shown.append([entry.state for entry in entries]), stop)
    assert runner.closed == 1
    return sweep, runner, shown


def _always(outcome, blame=True, checkpoint=None, times=50):
    return [(outcome, blame, checkpoint)] * times


DONE = (Outcome("finished"), True, None)


def test_finished_runs_are_not_started(made, tmp_path):
    configs, storage = made
    done = storage.name(configs[0])
    storage.write(done, "result.json", {"frames": configs[0].frames, "mean_return": 1.0})
    sweep, runner, _ = _run(configs, storage, {"": _always(Outcome("finished"))})
    assert sweep.complete and done not in runner.started and len(runner.started) == 3
    assert runner.most == 2


def test_a_larger_budget_goes_on(made):
    configs, storage = made
    result = {"frames": configs[0].frames, "mean_return": 1.0}
    storage.write(storage.name(configs[0]), "result.json", result)
    longer = [config.with_settings(frames=config.frames + 1) for config in configs[:1]]
    _, runner, _ = _run(longer, storage, {"": [DONE]})
    assert len(runner.started) == 1


def test_a_run_that_always_fails_is_given_up_and_the_others_finish(made):
    configs, storage = made
    endings = {"drqv2/seed-1": _always(FAILED), "": _always(Outcome("finished"))}
    sweep, runner, _ = _run(configs, storage, endings)
    states = {entry.name: entry.state for entry in sweep.entries}
    bad = next(name for name in states if "drqv2/seed-1" in name)
    assert states.pop(bad) == "failed" and set(states.values()) == {"finished"}
    assert runner.started.count(bad) == 3 and not sweep.complete
    assert next(e.text for e in sweep.entries if e.name == bad) == "it broke"
    again, runner, _ = _run(configs, storage, endings)
    assert runner.started == list(states)  # remembered: not tried once more
    assert "failed" in {entry.state for entry in again.entries}
    _, runner, _ = _run(configs[:1], storage, {"": [DONE]}, retry_failed=True)
    assert runner.started == [bad]


def test_failures_at_different_checkpoints_are_forgiven_up_to_a_limit(made):
    configs, storage = made
    moving = [(FAILED, True, 100 * i) for i in range(1, 6)] + [DONE]
    sweep, runner, _ = _run(configs[:1], storage, {"": moving})
    assert sweep.complete and len(runner.started) == 6
    storage.write(storage.name(configs[0]), "failures.json", {})
    endless = [(FAILED, True, 1000 * i) for i in range(1, 60)]
    sweep, runner, _ = _run(configs[:1], storage, {"": endless})
    assert sweep.entries[0].state == "failed" and len(runner.started) == 20


def test_a_machine_that_dies_is_never_the_runs_fault(made):
    configs, storage = made
    dying = _always(Outcome("failed", "its node died"), False, times=9)
    dying += _always(Outcome("superseded"), True, times=9) + [DONE]
    sweep, runner, _ = _run(configs[:1], storage, {"": dying})
    assert sweep.complete and len(runner.started) == 19
    assert storage.failures(storage.name(configs[0])) == []


def _stalls(ending, blame=True, times=5):
    return [(None, True, None), (ending, blame, None)] * times


def test_a_run_that_always_stalls_is_given_up(made, monkeypatch):
    configs, storage = made
    monkeypatch.setattr(driver, "_STALL_SECONDS", -1.0)  # each look finds it stalled
    sweep, runner, _ = _run(configs[:1], storage, {"": _stalls(Outcome("failed", "signal 9"))})
    [entry] = sweep.entries
    assert entry.state == "failed" and runner.killed == runner.started == [entry.name] * 3
    assert [failure["text"] for failure in storage.failures(entry.name)] == [entry.text] * 3
    assert entry.text.startswith("ended: no progress for")


@pytest.mark.parametrize(
    ("ending", "blame", "begins"),
    [
        (Outcome("failed", "its node died"), False, True),
        (Outcome("failed", "cancelled"), True, False),  # no node had room for it
        (Outcome("stopped"), True, True),
    ],
)
def test_a_stall_that_is_not_the_runs_fault_never_counts(made, monkeypatch, ending, blame, begins):
    configs, storage = made
    monkeypatch.setattr(driver, "_STALL_SECONDS", -1.0)
    sweep = Sweep(configs[:1], storage)
    runner = Script(storage, {"": [*_stalls(ending, blame), DONE]}, begins=begins)
    sweep.run(runner, lambda entries: None, lambda: False)
    assert sweep.complete and len(runner.killed) == 5
    assert not storage.failures(sweep.entries[0].name)


def test_only_the_attempt_that_was_ended_has_stalled(made, monkeypatch):
    configs, storage = made
    monkeypatch.setattr(driver, "_STALL_SECONDS", -1.0)
    sweep = Sweep(configs[:1], storage)
    endings = [(None, True, None), (FAILED, True, None), (FAILED, True, None), DONE]
    runner = Script(storage, {"": endings})

    def look(entries):
        monkeypatch.setattr(driver, "_STALL_SECONDS", 1000.0 if runner.killed else -1.0)

    sweep.run(runner, look, lambda: False)
    stalled, broke = [failure["text"] for failure in storage.failures(storage.name(configs[0]))]
    assert "no progress" in stalled and broke == "it broke"


def test_a_mistake_is_given_up_at_once_and_remembered(made):
    configs, storage = made
    refused = Outcome("refused", "ValueError: reward must be finite")
    sweep, runner, _ = _run(configs[:1], storage, {"": [(refused, True, 300)]})
    entry = sweep.entries[0]
    assert entry.state == "failed" and len(runner.started) == 1
    noted = [{"checkpoint": 300, "text": refused.text, "final": True}]
    assert storage.failures(entry.name) == noted
    again = Sweep(configs[:1], storage)
    assert again.entries[0].state == "failed" and again.entries[0].text == refused.text
    _, runner, _ = _run(configs[:1], storage, {"": [DONE]}, retry_failed=True)
    assert len(runner.started) == 1


def test_trying_again_leaves_runs_alone_that_have_not_failed(made, tmp_path):
    configs, storage = made
    Sweep(configs, storage, retry_failed=True)
    assert not list(tmp_path.rglob("failures.json"))


@pytest.mark.parametrize(
    ("problem", "final"),
    [
        (ValueError("wrong setting"), True),
        (TrainingFailedError("the loss is nan"), True),
        (DamagedError("a checkpoint"), False),  # storage may come back
        (RenderingError("no OpenGL here"), False),  # another node may draw
        (UnfitMachineError("no GPU here"), False),
        (json.JSONDecodeError("half a file", "", 0), False),
        (RuntimeError("CUDA error"), False),
        (OSError("disk full"), False),
        (MemoryError(), False),
    ],
)
def test_which_failures_would_only_be_repeated(problem, final):
    assert _is_final(problem) is final


def test_a_stop_leaves_at_once_and_closes_the_runner(made):
    configs, storage = made
    sweep, runner, shown = _run(configs, storage, {"": _always(None)}, stop=lambda: True)
    assert not runner.started and not shown and not sweep.complete


def test_a_failed_run_waits_before_it_is_tried_again(made, monkeypatch):
    configs, storage = made
    monkeypatch.setattr(driver, "_BACK_OFF_SECONDS", 1000.0)
    looks = []
    sweep = Sweep(configs[:1], storage)
    runner = Script(storage, {"": [(FAILED, True, None), DONE]})
    sweep.run(runner, lambda entries: looks.append(entries[0].state), lambda: len(looks) > 5)
    assert len(runner.started) == 1 and looks[-1] == "waiting"


def test_what_is_noted_is_json(made, tmp_path):
    configs, storage = made
    _run(configs[:1], storage, {"": [(FAILED, True, 300), DONE]})
    noted = json.loads((tmp_path / storage.name(configs[0]) / "failures.json").read_text())
    assert noted == {"failures": [{"checkpoint": 300, "text": "it broke"}]}


# ---- what is refused before anything starts


def _refused(configs, storage, here=True):
    with pytest.raises(ValueError) as caught:
        Sweep(configs, storage).check(here=here)
    return str(caught.value)


def _begin(storage, config, **changes):
    storage.write(storage.name(config), "config.json", config.with_settings(**changes).as_dict())


def test_a_grid_that_can_be_made_is_not_refused(made):
    configs, storage = made
    _begin(storage, configs[0])
    _begin(storage, configs[1], frames=999, device="cuda")  # safe changes
    Sweep(configs, storage).check(here=True)


def test_runs_with_other_settings_are_refused_together(made):
    configs, storage = made
    _begin(storage, configs[0], hidden=99)
    _begin(storage, configs[2], batch_size=7)
    text = _refused(configs, storage)
    assert text.startswith("2 of 4 runs cannot be trained; none was started:\n")
    for config, change in ((configs[0], "--hidden was 99, now 16"), (configs[2], "--batch-size")):
        line = next(line for line in text.splitlines() if change in line)
        assert line.startswith(
            f"  {storage.name(config)}: {storage.folder(storage.name(config))} was"
        )


def test_one_reason_for_all_runs_is_told_once(made):
    configs, storage = made
    text = _refused([config.with_settings(device="gpu") for config in configs], storage, here=False)
    assert text == "device must be auto, cpu, mps, cuda or cuda:N, got 'gpu'; try auto"


def test_one_reason_for_some_runs_names_the_first(made):
    configs, storage = made
    some = [config.with_settings(device="gpu") for config in configs[:3]] + configs[3:]
    text = _refused(some, storage)
    assert f"  {storage.name(configs[0])} and 2 more runs: device must be" in text


def test_runs_that_differ_by_their_seed_are_checked_once(tmp_path, monkeypatch):
    """So that the time to plan thousands of seeds is that of reading their folders."""
    checked = []
    monkeypatch.setattr("revbis.runs.preflight.check", lambda config, here: checked.append(config))
    configs = small_grid(seeds=list(range(50))).configs(tmp_path)
    assert Sweep(configs, SweepStorage(str(tmp_path))).check(here=True) is None
    assert len(configs) == 100 and [config.method for config in checked] == ["drqv2", "simsr-rev"]


def test_many_reasons_are_cut(tmp_path):
    configs = small_grid(seeds=list(range(10)), methods=["drqv2"]).configs(tmp_path)
    storage = SweepStorage(str(tmp_path))
    for config in configs:
        _begin(storage, config, hidden=99)
    lines = _refused(configs, storage).splitlines()
    assert len(lines) == 7 and lines[-1] == "  and 5 more reasons"


def test_finished_runs_need_no_machine_but_the_same_settings(made, monkeypatch):
    configs, storage = made
    monkeypatch.setattr("revbis.runs.preflight.is_installed", lambda module: False)
    with_wandb = [config.with_settings(wandb="mine") for config in configs]
    assert "pip install wandb" in Sweep(with_wandb, storage).check(here=True)
    assert Sweep(with_wandb, storage).check(here=False) is None
    for config in with_wandb:
        result = {"frames": config.frames, "mean_return": 1.0}
        storage.write(storage.name(config), "result.json", result)
    assert Sweep(with_wandb, storage).check(here=True) is None
    _begin(storage, configs[0], hidden=99)
    assert "--hidden" in _refused(with_wandb, storage)


def test_a_run_at_a_url_is_compared_too(tmp_path):
    storage = SweepStorage(f"file://{tmp_path}")
    configs = small_grid().configs(Path())
    _begin(storage, configs[0], hidden=99)
    text = _refused(configs, storage, here=False)
    assert f"file://{tmp_path}/{storage.name(configs[0])} was started with other settings" in text
    (tmp_path / storage.name(configs[0]) / "config.json").write_text("[" * 100_000)
    assert "config.json is not a revbis config" in _refused(configs, storage, here=False)


FILES = ("progress.json", "result.json", "failures.json")
ANYTHING = [
    b"",
    b"[]",
    b"{half",
    b"NaN",
    b"\xff\xfe\x00",
    b"[" * 200_000,
    b'{"frames": "many", "failures": "none"}',
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
