import json
import os
import sys
from pathlib import Path

import pytest

from revbis.doctor import examination, questions
from revbis.envs.rendering import backend_loads
from revbis.io import machine


def fake(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Has every question answered by this program."""
    monkeypatch.setattr(examination, "_command", lambda question: [sys.executable, "-c", code])


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import os; os.kill(os.getpid(), 11)", "crashes (SIGSEGV)"),
        ("print('revbis-doctor:{}', flush=True); import os; os.abort()", "crashes (SIGABRT)"),
        ("import sys; print('a\\nlibGL: no', file=sys.stderr); sys.exit(3)", "code 3: libGL: no"),
        ("", "no error message"),
    ],
)
def test_a_crash_is_an_answer(code: str, words: str, monkeypatch) -> None:
    fake(monkeypatch, code)
    assert words in examination.ask("draw", MUJOCO_GL="egl")["error"]


def test_a_hang_is_an_answer(monkeypatch) -> None:
    fake(monkeypatch, "import time; time.sleep(600)")
    monkeypatch.setattr(examination, "_PATIENCE", 0.5)
    assert examination.ask("draw", MUJOCO_GL="egl")["error"].startswith("hangs")


def test_an_answer_amid_noise_and_the_environment(monkeypatch) -> None:
    code = (
        "import os; print('hi'); print('revbis-doctor:{\"a\": \"%s\"}' % os.environ['MUJOCO_GL'])"
    )
    fake(monkeypatch, code + "; print('bye')")
    assert examination.ask("draw", MUJOCO_GL="egl") == {"a": "egl"}


def test_whatever_a_library_raises_is_one_line(monkeypatch, capsys) -> None:
    def fails() -> dict:
        raise RuntimeError("no\n  display")

    monkeypatch.setitem(questions.QUESTIONS, "draw", fails)
    questions.main("draw")
    line = capsys.readouterr().out.strip()
    assert json.loads(line.removeprefix("revbis-doctor:")) == {"error": "no display"}


@pytest.mark.parametrize("name", ["egl", "osmesa"])
def test_really_draws(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYOPENGL_PLATFORM", raising=False)  # MuJoCo sets it when it first draws
    if not backend_loads(name):
        pytest.skip(f"this machine has no {name}: make gl")
    answer = examination.ask("draw", MUJOCO_GL=name)
    assert "error" not in answer, answer
    assert answer["renderer"] and answer["vendor"]
    assert answer["full"] > 0 and answer["fast"] > 0


def test_a_blank_picture_is_no_picture(monkeypatch) -> None:
    if not backend_loads("egl"):
        pytest.skip("this machine has no egl: make gl")
    code = "from revbis.doctor import questions\n"
    code += "from revbis.envs.rendering import Renderer\n"
    code += "Renderer.draw = lambda self, data, out: out.fill(7)\nquestions.main('draw')"
    fake(monkeypatch, code)
    assert "blank" in examination.ask("draw", MUJOCO_GL="egl")["error"]


@pytest.mark.parametrize(
    "name",
    [
        "gymnasium",
        "torch",
        pytest.param("mujoco", marks=pytest.mark.env("metaworld", gl=False)),
        pytest.param("metaworld", marks=pytest.mark.env("metaworld", gl=False)),
        pytest.param("dm_control", marks=pytest.mark.env("dmc", gl=False)),
    ],
)
def test_really_steps(name: str) -> None:
    answer = examination.ask(name, MUJOCO_GL="disable")
    assert "error" not in answer, answer


def test_this_machine() -> None:
    facts = questions.machine()
    assert 1 <= facts["affinity"] <= facts["cores"]
    assert 0 < facts["memory free"] <= facts["memory"]
    assert facts["disk free"][os.getcwd()] > 0


GROUPS = {
    "version 2": {
        "proc/self/cgroup": "0::/slurm/job_7/step_0\n",
        "cgroup/slurm/job_7/step_0/cpu.max": "max 100000\n",
        "cgroup/slurm/job_7/cpu.max": "150000 100000\n",
        "cgroup/slurm/cpu.max": "800000 100000\n",
        "cgroup/slurm/job_7/memory.max": "3000000000\n",
        "cgroup/slurm/memory.max": "max\n",
    },
    "version 1": {
        "proc/self/cgroup": "4:memory:/box\n2:cpu,cpuacct:/box\n0::/\n",
        "cgroup/cpu/box/cpu.cfs_quota_us": "150000\n",
        "cgroup/cpu/box/cpu.cfs_period_us": "100000\n",
        "cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        "cgroup/cpu/cpu.cfs_period_us": "100000\n",
        "cgroup/memory/box/memory.limit_in_bytes": "3000000000\n",
        "cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    },
    "seen from inside a container": {  # the path of the host leads nowhere; the top is its own
        "proc/self/cgroup": "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n",
        "cgroup/cpu/cpu.cfs_quota_us": "150000\n",
        "cgroup/cpu/cpu.cfs_period_us": "100000\n",
        "cgroup/memory/memory.limit_in_bytes": "3000000000\n",
    },
}


@pytest.mark.parametrize("files", GROUPS.values(), ids=GROUPS)
def test_limits_of_control_groups(files: dict[str, str], tmp_path: Path, monkeypatch) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(machine, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(machine, "_GROUPS", tmp_path / "cgroup")
    facts = questions.machine()
    assert facts["quota"] == 1.5 and facts["memory"] == 3_000_000_000
    assert facts["memory free"] <= facts["memory"]


def test_the_driver_of_a_gpu(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(questions, "_DRIVER", tmp_path / "version")
    monkeypatch.setattr(questions, "_DEVICES", tmp_path)
    monkeypatch.setattr(questions.shutil, "which", lambda name: None)
    assert questions._nvidia_driver() is None
    (tmp_path / "nvidiactl").touch()
    assert questions._nvidia_driver() is None
    (tmp_path / "nvidia0").touch()
    assert questions._nvidia_driver() == ""
    line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build\n"
    (tmp_path / "version").write_text(line + "GCC version:  gcc version 12.2.0\n")
    assert questions._nvidia_driver() == "550.54.15"
