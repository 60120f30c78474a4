"""How a sweep decides: what is skipped, resumed, tried again and given up."""

import json
from dataclasses import replace

import pytest
from tests.sweep.grids import small_grid

from revbis.sweep import driver
from revbis.sweep.attempt import Outcome
from revbis.sweep.driver import Ended, Sweep
from revbis.sweep.place import Place

FAILED = Outcome("failed", "it broke")


class Script:
    """A runner whose attempts end as told: what comes next for each run, by its name's end."""

    where = "a script"

    def __init__(self, place, endings, room=2):
        self.place, self.endings, self._room = place, endings, room
        self.running, self.started, self.killed, self.closed = [], [], [], 0
        self.most = 0

    def room(self):
        return self._room - len(self.running)

    def start(self, name, job):
        self.running.append(name)
        self.started.append(name)
        self.most = max(self.most, len(self.running))

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
                self.place.write(f"{name}/checkpoints/frame-{checkpoint:012d}", "manifest.json", {})
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
    return configs, Place(str(tmp_path))


def _run(configs, place, endings, stop=lambda: False, **options):
    sweep, runner = Sweep(configs, place, **options), Script(place, endings)
    shown = []
    sweep.run(runner, lambda entries: shown.append([entry.state for entry in entries]), stop)
    assert runner.closed == 1
    return sweep, runner, shown


def _always(outcome, blame=True, checkpoint=None, times=50):
    return [(outcome, blame, checkpoint)] * times


DONE = (Outcome("finished"), True, None)


def test_finished_runs_are_not_started(made, tmp_path):
    configs, place = made
    done = place.name(configs[0])
    place.write(done, "result.json", {"frames": configs[0].frames, "mean_return": 1.0})
    sweep, runner, _ = _run(configs, place, {"": _always(Outcome("finished"))})
    assert sweep.complete and done not in runner.started and len(runner.started) == 3
    assert runner.most == 2


def test_a_larger_budget_goes_on(made):
    configs, place = made
    place.write(place.name(configs[0]), "result.json", {"frames": configs[0].frames})
    longer = [replace(config, frames=config.frames + 1) for config in configs[:1]]
    _, runner, _ = _run(longer, place, {"": [DONE]})
    assert len(runner.started) == 1


def test_a_run_that_always_fails_is_given_up_and_the_others_finish(made):
    configs, place = made
    endings = {"drqv2/seed-1": _always(FAILED), "": _always(Outcome("finished"))}
    sweep, runner, _ = _run(configs, place, endings)
    states = {entry.name: entry.state for entry in sweep.entries}
    bad = next(name for name in states if "drqv2/seed-1" in name)
    assert states.pop(bad) == "failed" and set(states.values()) == {"finished"}
    assert runner.started.count(bad) == 3 and not sweep.complete
    assert next(e.text for e in sweep.entries if e.name == bad) == "it broke"
    again, runner, _ = _run(configs, place, endings)
    assert runner.started == list(states)  # remembered: not tried once more
    assert "failed" in {entry.state for entry in again.entries}
    _, runner, _ = _run(configs[:1], place, {"": [DONE]}, retry_failed=True)
    assert runner.started == [bad]


def test_failures_at_different_checkpoints_are_forgiven_up_to_a_limit(made):
    configs, place = made
    moving = [(FAILED, True, 100 * i) for i in range(1, 6)] + [DONE]
    sweep, runner, _ = _run(configs[:1], place, {"": moving})
    assert sweep.complete and len(runner.started) == 6
    place.write(place.name(configs[0]), "failures.json", {})
    endless = [(FAILED, True, 1000 * i) for i in range(1, 60)]
    sweep, runner, _ = _run(configs[:1], place, {"": endless})
    assert sweep.entries[0].state == "failed" and len(runner.started) == 20


def test_a_machine_that_dies_is_never_the_runs_fault(made):
    configs, place = made
    dying = _always(Outcome("failed", "its node died"), False, times=9)
    dying += _always(Outcome("superseded"), True, times=9) + [DONE]
    sweep, runner, _ = _run(configs[:1], place, {"": dying})
    assert sweep.complete and len(runner.started) == 19
    assert place.json(place.name(configs[0]), "failures.json") == {}


def test_a_run_that_tells_nothing_for_long_is_ended(made, monkeypatch):
    configs, place = made
    monkeypatch.setattr(driver, "_STALL_SECONDS", -1.0)
    _, runner, _ = _run(configs[:1], place, {"": [(None, True, None), DONE]})
    assert runner.killed[0] == place.name(configs[0])


def test_a_stop_leaves_at_once_and_closes_the_runner(made):
    configs, place = made
    sweep, runner, shown = _run(configs, place, {"": _always(None)}, stop=lambda: True)
    assert not runner.started and not shown and not sweep.complete


def test_a_failed_run_waits_before_it_is_tried_again(made, monkeypatch):
    configs, place = made
    monkeypatch.setattr(driver, "_BACK_OFF_SECONDS", 1000.0)
    looks = []
    sweep = Sweep(configs[:1], place)
    runner = Script(place, {"": [(FAILED, True, None), DONE]})
    sweep.run(runner, lambda entries: looks.append(entries[0].state), lambda: len(looks) > 5)
    assert len(runner.started) == 1 and looks[-1] == "waiting"


def test_progress_is_read_from_the_runs_folder(made):
    configs, place = made
    name = place.name(configs[0])
    place.write(name, "progress.json", {"frames": 700, "mean_return": 3.0})
    sweep = Sweep(configs[:1], place)
    assert sweep.entries[0].progress == {"frames": 700, "mean_return": 3.0}


@pytest.mark.parametrize("content", ["", "[1]", "{half", "null"])
def test_files_that_are_no_json_are_passed_over(made, tmp_path, content):
    configs, place = made
    folder = tmp_path / place.name(configs[0])
    folder.mkdir(parents=True)
    for file in ("progress.json", "failures.json", "result.json"):
        (folder / file).write_text(content)
    assert Sweep(configs[:1], place).entries[0].state == "waiting"


def test_what_is_noted_is_json(made, tmp_path):
    configs, place = made
    _run(configs[:1], place, {"": [(FAILED, True, 300), DONE]})
    noted = json.loads((tmp_path / place.name(configs[0]) / "failures.json").read_text())
    assert noted == {"failures": [{"checkpoint": 300, "text": "it broke"}]}
