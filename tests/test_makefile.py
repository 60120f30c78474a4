"""The Makefile's choice of an interpreter; nothing is installed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def plan(folder: Path, python: Path | str) -> subprocess.CompletedProcess[str]:
    """What `make demo` would do with an environment in the folder."""
    words = ["make", "--dry-run", "demo", f"VENV={folder}", f"PYTHON={python}"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)


def fake(path: Path, version: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {version}\n")
    path.chmod(0o755)
    return path


def test_an_interpreter_that_is_too_new_is_refused(tmp_path: Path) -> None:
    done = plan(tmp_path, python := fake(tmp_path / "python3.15", "3.15"))
    assert done.returncode == 2
    assert f"PYTHON={python} cannot be used: revbis requires Python 3.11 to 3.14" in done.stderr
    assert "and this is 3.15" in done.stderr


def test_one_that_does_not_run_is_refused(tmp_path: Path) -> None:
    done = plan(tmp_path, tmp_path / "nowhere")
    assert done.returncode == 2 and "does not run" in done.stderr


def test_an_environment_of_another_version_is_not_taken_for_it(tmp_path: Path) -> None:
    fake(tmp_path / "bin" / "python", "3.11")
    done = plan(tmp_path, fake(tmp_path / "python3.12", "3.12"))
    assert done.returncode == 2 and "was made with another: run make clean first" in done.stderr


def test_an_interpreter_that_fits_is_used(tmp_path: Path) -> None:
    assert plan(tmp_path, sys.executable).returncode == 0


def test_another_python_has_an_environment_of_its_own(tmp_path: Path) -> None:
    python = fake(tmp_path / "python3.13", "3.13")
    words = ["make", "--dry-run", "test-python", f"PYTHON={python}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ".venv-3.13/bin/python -m pytest" in done.stdout
