"""`revbis.train` and `revbis.open_run`."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.runs import TINY, Walk, evaluations, flags, tiny_config

import revbis
from revbis import api
from revbis.api import TrainedRun
from revbis.cli import main

WALK = {"observation": "state", "frames": 200}
SMALL = TINY | WALK


class Still(Walk):
    """A walk that always begins at the same place: evaluations of one agent are all the same."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0.25
        return self._seen(), {}


def small(out: Path, task: str = "tests.test_api:Still", **settings) -> TrainedRun:
    return revbis.train(task, out=out, **SMALL | {"progress": False} | settings)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> TrainedRun:
    return small(tmp_path_factory.mktemp("runs"), method="simsr-rev", eval_episodes=2)


def test_it_is_the_run_of_the_command(tmp_path):
    config = tiny_config(tmp_path / "command", task="tests.runs:Walk", method="mico", **WALK)
    main(["train", *flags(config)])
    run = small(tmp_path / "call", task="tests.runs:Walk", method="mico")
    assert run.folder == run.config.directory and run.finished
    assert run.config == config.with_settings(out=tmp_path / "call")
    assert evaluations(run.config) == evaluations(config)
    assert run.evaluations[-1]["frames"] == 200


def test_defaults_are_those_of_the_command(tmp_path, monkeypatch):
    trained = []

    def start(config, **_):
        trained.append(config)
        raise KeyboardInterrupt

    monkeypatch.setattr("revbis.runs.run.train", start)
    for words in ([], ["--observation", "state", "--frames", "9000", "--method", "tdmpc"]):
        settings = dict(zip([word[2:] for word in words[::2]], words[1::2], strict=True))
        with pytest.raises(KeyboardInterrupt):
            revbis.train("dmc:cartpole_swingup", **settings)
        with pytest.raises(SystemExit):
            main(["train", "--task", "dmc:cartpole_swingup", *words])
        assert trained[-1] == trained[-2] and trained[-1].preset == "cpu"


def test_an_evaluation_is_the_recorded_one_where_episodes_are_the_same(run):
    recorded, now = run.evaluations[-1], run.evaluate(episodes=3)
    assert now["mean_return"] == recorded["mean_return"]
    assert now["returns"] == [recorded["returns"][0]] * 3
    assert now["success_any"] == [None] * 3


def test_an_evaluation_is_that_of_the_command(tmp_path):
    run = small(tmp_path, task="tests.runs:Walk")
    out = tmp_path / "episodes.json"
    words = ["--episodes", "2", "--seed", "5", "--out", str(out)]
    main(["eval", "--trust", str(run.folder), *words])
    assert run.evaluate(2, seed=5)["returns"] == [
        each["total"] for each in json.loads(out.read_text())
    ]


@pytest.mark.parametrize(("name", "value"), [("episodes", 0), ("seed", -1)])
def test_evaluations_are_checked(name, value, run):
    with pytest.raises(ValueError, match=f"{name} must be"):
        run.evaluate(**{name: value})


def test_its_agent_acts_and_embeds(run):
    agent, observation = run.agent, np.array([0.25, 0.0], np.float32)
    assert (agent.observation_shape, agent.action_size, agent.frames) == ((2,), 1, 200)
    agent.begin_episode()
    action = agent.act(observation)
    assert action.shape == (1,) and abs(action[0]) <= 1
    assert np.array_equal(action, agent.act(observation))
    assert agent.embed(observation[None]).shape[0] == 1
    with pytest.raises(ValueError, match="observation must be a NumPy array of float32"):
        agent.act(np.zeros(3))


def test_report_writes_the_page(run, tmp_path):
    page = run.report()
    assert page == run.folder / "page" / "index.html" and "simsr-rev" in page.read_text()
    assert run.report(tmp_path / "elsewhere", videos=False) == tmp_path / "elsewhere" / "index.html"


def test_it_describes_itself(run):
    score = run.evaluations[-1]["mean_return"]
    assert repr(run) == f"TrainedRun({str(run.folder)!r}, {score:.1f} at frame 200 of 200)"


def test_open_run_needs_trust_for_code(run, tmp_path):
    opened = revbis.open_run(str(run.folder))
    assert opened.config == run.config and opened.evaluations == run.evaluations
    with pytest.raises(ValueError, match=r"names code of its author's, tests\.test_api:Still,"):
        opened.evaluate()
    assert revbis.open_run(run.folder, trust=True).evaluate(1) == run.evaluate(1)
    with pytest.raises(ValueError, match="is not a run"):
        revbis.open_run(tmp_path)


def test_callbacks_get_every_evaluation_and_step(tmp_path):
    records, statuses = [], []
    run = small(tmp_path, on_evaluation=records.append, on_step=statuses.append, eval_every=80)
    assert records == run.evaluations and [each["frames"] for each in records] == [0, 80, 160, 200]
    assert [each.progress.agent_steps for each in statuses] == list(range(1, 26))
    records[0]["returns"].clear()  # the run's own are others


@pytest.mark.parametrize("name", ["on_evaluation", "on_step"])
@pytest.mark.parametrize("answer", [True, np.True_])
def test_a_callback_that_returns_true_stops_and_a_call_resumes(name, answer, tmp_path):
    def stop(given):
        frames = given["frames"] if name == "on_evaluation" else given.progress.frames
        return answer if frames >= 80 else [frames]  # a list is no answer

    run = small(tmp_path, **{name: stop}, eval_every=80)
    assert not run.finished and 80 <= run.agent.frames < 200
    run = small(tmp_path, eval_every=80)
    assert run.finished and run.agent.frames == 200
    whole = small(tmp_path / "whole", eval_every=80)
    assert evaluations(run.config) == evaluations(whole.config)
    assert small(tmp_path, on_evaluation=pytest.fail, eval_every=80).finished  # trains nothing


def test_an_error_in_a_callback_is_the_users(tmp_path):
    def broken(_):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        small(tmp_path, on_step=broken)
    assert small(tmp_path).finished


def test_ctrl_c_saves_and_says_how_to_resume(tmp_path, caplog):
    def press(status):
        if status.progress.frames == 120:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        small(tmp_path, on_step=press)
    assert signal.getsignal(signal.SIGINT) == before
    (folder,) = tmp_path.glob("cpu/*/*/seed-1")
    assert f"saved in {folder}; repeat the call to resume" in caplog.text
    assert revbis.open_run(folder, trust=True).agent.frames == 120
    assert small(tmp_path).finished and "resumed at frame 120" in caplog.text


def test_it_trains_in_another_thread(tmp_path):
    runs = []
    thread = threading.Thread(target=lambda: runs.append(small(tmp_path)))
    thread.start()
    thread.join()
    assert runs[0].finished


def test_threads_stay_the_programs_own(tmp_path):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        small(tmp_path, threads=1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"framse": 100}, "unknown framse; did you mean 'frames'"),
        ({"method": "simsr-reff"}, "did you mean 'simsr-rev'"),
        ({"preset": "gpu"}, "--preset must be"),
        ({"frames": 8}, "the run would end before the first update"),
        ({"batch_size": "many"}, "batch_size must be"),
    ],
)
def test_mistakes_are_those_of_the_command(settings, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        small(tmp_path / "runs", **settings)
    assert not (tmp_path / "runs").exists()


def test_other_settings_are_refused_and_restart_discards(tmp_path):
    small(tmp_path)
    with pytest.raises(ValueError, match="started with other settings: --batch-size was 8, now 4"):
        small(tmp_path, batch_size=4)
    assert small(tmp_path, batch_size=4, restart=True).config.agent.batch_size == 4


def test_progress_is_the_commands_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("revbis.cli.console._PLAIN_SECONDS", 0.0)
    monkeypatch.setattr("revbis.cli.console._LIVE_SECONDS", 0.0)
    small(tmp_path, progress=True)
    assert "200/200 frames" in capsys.readouterr().err
    small(tmp_path / "quiet")
    assert "frames" not in capsys.readouterr().err


class _Display:
    """What IPython's `display` returns: it shows one thing, which `update` replaces."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, shown) -> None:
        self.shown.append(shown)


def test_in_a_notebook_it_is_a_bar(tmp_path, capsys, monkeypatch):
    handle, shell = _Display(), type("Shell", (), {"kernel": object()})()
    package, display = type(sys)("IPython"), type(sys)("IPython.display")
    package.get_ipython, package.display = (lambda: shell), display
    display.HTML, display.display = str, (lambda *_, display_id: handle)
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    small(tmp_path, progress=True)
    assert '<progress value="200" max="200"' in handle.shown[-1]
    assert "<code>200/200 frames" in handle.shown[-1]
    assert "frames" not in capsys.readouterr().err
    shell.kernel = None  # IPython in a terminal
    assert not api._in_notebook()


def test_importing_revbis_imports_no_torch():
    code = "import revbis, sys; dir(revbis); assert 'torch' not in sys.modules"
    code += "; revbis.train, revbis.open_run; assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
