"""Tests that cannot run on a machine are named in the summary, with the reason and the fix."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest

@pytest.mark.env("dmc")
def test_draws():
    pass

@pytest.mark.env("metaworld", gl=False)
def test_steps():
    pass

def test_plain():
    pass
"""
BLOCKER = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "metaworld":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
"""


def run(folder: Path, *words: str, **variables: str) -> str:
    """What a run of pytest with our conftest prints."""
    shutil.copy(Path(__file__).parents[1] / "conftest.py", folder)
    (folder / "test_some.py").write_text(TESTS)
    (folder / "blocker.py").write_text(BLOCKER)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    env: needs a simulator\n")
    environment = {**os.environ, **variables}
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), *sys.path])
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:randomly", *words)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.env("dmc", "metaworld", gl=False)
def test_without_opengl_the_summary_says_what_did_not_run(tmp_path: Path) -> None:
    output = run(tmp_path, "-n", "1", MUJOCO_GL="disabled")
    assert "1 test of environments could not run" in output
    assert "why: OpenGL does not work: the OpenGL backend 'disabled'" in output
    assert (
        "fix: unset MUJOCO_GL; apt-get install -y libegl1" in output and "conda install" in output
    )
    assert "  test_some.py::test_draws" in output
    assert "2 passed, 1 skipped" in output


@pytest.mark.env("dmc")
def test_without_a_simulator_the_summary_says_what_to_install(tmp_path: Path) -> None:
    output = run(tmp_path, "-p", "blocker")
    assert "why: metaworld cannot be imported: No module named 'metaworld'" in output
    assert 'fix: pip install "' in output and "metaworld==" in output
    assert "  test_some.py::test_steps" in output and "test_draws" not in output
    assert "2 passed, 1 skipped" in output


@pytest.mark.env("dmc", "metaworld")
def test_where_all_can_run_the_summary_is_silent(tmp_path: Path) -> None:
    output = run(tmp_path)
    assert "3 passed" in output and "could not run" not in output
    assert "could not run" not in run(tmp_path, "-k", "plain", "-p", "blocker")
