"""What holds for every test.

Tests run beside each other, each with one thread, with the same seeds in any order, and what a test
changes in its process is put back.

`@pytest.mark.env("dmc", "metaworld")` names the simulators a test needs; `gl=False` says that it
draws nothing. Where a simulator or OpenGL does not work such tests are skipped, and the summary
says why and what to do.
"""

# ruff: noqa: E402 (the environment is set before the imports)
from __future__ import annotations

import os
import sys
from pathlib import Path

# OpenMP, OpenBLAS, MKL and Numba read these when they are loaded, so they come before the imports.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ["OMP_WAIT_POLICY"] = "passive"
# Mesa compiles its shaders anew for each of hundreds of small renderers: sooner, if less well.
os.environ.setdefault("GALLIVM_PERF", "nopt")
# Processes that tests start find the package `tests` too, wherever pytest was called.
_ROOT = Path(__file__).parents[1]
_PATHS = (str(_ROOT), os.environ.get("PYTHONPATH"))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _PATHS))
# Two processes that write Numba's cache at the same time may mix up what they compiled.
if _worker := os.environ.get("PYTEST_XDIST_WORKER"):
    os.environ["NUMBA_CACHE_DIR"] = str(_ROOT / ".pytest_cache" / "numba" / _worker)
# Settings of the user's shell that would change what is printed, or where Ray and git look.
for _name in ("COLUMNS", "LINES", "FORCE_COLOR", "PYTHONWARNINGS", "RAY_ADDRESS", "GIT_DIR"):
    os.environ.pop(_name, None)
# Else every process that tests start would compile each module anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

import logging
import random
import signal
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module

import hypothesis
import numpy as np
import pytest

from revbis.envs.rendering import APT_LINE, CONDA_LINE, Renderer, RenderingError, choose_backend
from revbis.envs.suites import SUITES

# The same examples each time, from no database, and no judgement on how long they take.
hypothesis.settings.register_profile(
    "suite",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("suite")

# No test outlives a power cut, and waiting for the disk takes a tenth of the time.
os.fsync = lambda descriptor: None

_BOX2D_LINE = 'pip install "gymnasium[box2d]>=1.0"'
# By what tests call it: the module that is tried, and the line that installs it.
_SIMULATORS = {suite.name: (suite.modules[-1], suite.install_line) for suite in SUITES.values()}
_SIMULATORS["box2d"] = ("Box2D", _BOX2D_LINE)
_MUJOCO_LINE = next(suite.install_line for suite in SUITES.values() if suite.drawn_by_mujoco)
_NOT_RUN = "could not run"  # the property of a test that holds the reason and the fix
# Those of a process in the foreground: a shell has SIGINT ignored in what it runs behind it, and
# the processes that tests start would inherit that.
_SIGNALS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


@pytest.fixture(autouse=True)
def _undisturbed() -> Iterator[None]:
    """Begins with the same state as every other test, and puts back what the test changes."""
    _reset()  # fixtures of a whole module may have changed it
    kept, suites = dict(os.environ), dict(SUITES)
    yield
    for name in os.environ.keys() - kept.keys():
        del os.environ[name]
    os.environ.update(kept)
    for name in SUITES.keys() - suites.keys():
        del SUITES[name]
    _reset()


def _reset() -> None:
    """Log, signals, global generators and settings of PyTorch as at the beginning."""
    logger = logging.getLogger("revbis")  # commands put a handler on the stream of the moment
    logger.handlers, logger.propagate = [], True
    logger.setLevel(logging.NOTSET)
    for number, handler in _SIGNALS.items():
        signal.signal(number, handler)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        torch.set_flush_denormal(False)


def pytest_configure() -> None:
    with suppress(RenderingError):  # told where a test needs it
        choose_backend()  # before any test module imports MuJoCo


@pytest.hookimpl(trylast=True)  # what -k and -m leave
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for marker in item.iter_markers("env"):
            obstacle = _obstacle(marker.args, marker.kwargs.get("gl", True))
            if obstacle is not None:
                item.user_properties.append((_NOT_RUN, obstacle))
                item.add_marker(pytest.mark.skip(reason=obstacle[0]))
                break


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    not_run: dict[tuple[str, str], list[str]] = defaultdict(list)
    for report in terminalreporter.stats.get("skipped", []):  # pytest-xdist sends these too
        for name, obstacle in report.user_properties:
            if name == _NOT_RUN:
                not_run[tuple(obstacle)].append(report.nodeid)
    for (why, fix), tests in not_run.items():
        count = f"{len(tests)} test{'s' if len(tests) > 1 else ''}"
        terminalreporter.section(f"{count} of environments could not run", red=True)
        terminalreporter.write_line(f"why: {why}")
        terminalreporter.write_line(f"fix: {fix}")
        for test in tests:
            terminalreporter.write_line(f"  {test}")


def _obstacle(simulators: tuple[str, ...], needs_gl: bool) -> tuple[str, str] | None:
    """Why tests with these needs cannot run, and the line that fixes it."""
    for simulator in simulators:
        if (obstacle := _missing(simulator)) is not None:
            return obstacle
    return _no_gl() if needs_gl else None


@cache
def _missing(simulator: str) -> tuple[str, str] | None:
    module, line = _SIMULATORS[simulator]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # theirs, not ours: SWIG's modules crash on errors
            import_module(module)
    except ImportError as error:
        return f"{simulator} cannot be imported: {error}", line
    return None


@cache
def _no_gl() -> tuple[str, str] | None:
    """Tries OpenGL by drawing an empty world."""
    try:
        choose_backend()
        import mujoco
        import numpy as np

        model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><camera/></worldbody></mujoco>")
        renderer = Renderer(model, 8, 0, "fast")
        renderer.draw(mujoco.MjData(model), np.empty((3, 8, 8), dtype=np.uint8))
        renderer.close()
    except ModuleNotFoundError as error:
        return f"MuJoCo cannot be imported: {error}", _MUJOCO_LINE
    except Exception as error:  # MuJoCo, PyOpenGL, GLFW: each has its own
        why = " ".join(str(error).split()) or type(error).__name__
        return f"OpenGL does not work: {why}", f"unset MUJOCO_GL; {APT_LINE} (conda: {CONDA_LINE})"
    return None
