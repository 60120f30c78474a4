"""Tests marked `env` run where their simulator and OpenGL work; elsewhere the summary says why not.

`@pytest.mark.env("dmc", "metaworld")` names the simulators a test needs; `gl=False` says that it
draws nothing.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from contextlib import suppress
from functools import cache
from importlib import import_module

import pytest

from revbis.envs.extras import install_line
from revbis.envs.rendering import APT_LINE, CONDA_LINE, Renderer, RenderingError, choose_backend

_BOX2D_LINE = 'pip install "gymnasium[box2d]>=1.0"'
_SIMULATORS = {
    "dmc": ("dm_control.suite", install_line("dmc")),
    "metaworld": ("metaworld.env_dict", install_line("metaworld")),
    "gym": ("gymnasium", install_line("gym")),
    "box2d": ("Box2D", _BOX2D_LINE),
}
_NOT_RUN = pytest.StashKey[dict[tuple[str, str], list[str]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_NOT_RUN] = defaultdict(list)
    with suppress(RenderingError):  # told where a test needs it
        choose_backend()  # before any test module imports MuJoCo


@pytest.hookimpl(trylast=True)  # what -k and -m leave
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for marker in item.iter_markers("env"):
            obstacle = _obstacle(marker.args, marker.kwargs.get("gl", True))
            if obstacle is not None:
                config.stash[_NOT_RUN][obstacle].append(item.nodeid)
                item.add_marker(pytest.mark.skip(reason=obstacle[0]))
                break


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for (why, fix), tests in config.stash[_NOT_RUN].items():
        count = f"{len(tests)} test{'s' if len(tests) > 1 else ''}"
        terminalreporter.section(f"{count} of environments could not run", red=True)
        terminalreporter.write_line(f"why: {why}")
        terminalreporter.write_line(f"fix: {fix}")
        for test in tests:
            terminalreporter.write_line(f"  {test}")


def _obstacle(simulators: tuple[str, ...], needs_gl: bool) -> tuple[str, str] | None:
    """Why tests with these needs cannot run, and the line that mends it."""
    for simulator in simulators:
        if (found := _missing(simulator)) is not None:
            return found
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

        model = mujoco.MjModel.from_xml_string("<mujoco/>")
        renderer = Renderer(model, 8, -1, "fast")
        renderer._camera.type = mujoco.mjtCamera.mjCAMERA_FREE
        renderer.draw(mujoco.MjData(model), np.empty((3, 8, 8), dtype=np.uint8))
        renderer.close()
    except ModuleNotFoundError as error:
        return f"MuJoCo cannot be imported: {error}", install_line("dmc")
    except Exception as error:  # MuJoCo, PyOpenGL, GLFW: each has its own
        why = " ".join(str(error).split()) or type(error).__name__
        return f"OpenGL does not work: {why}", f"unset MUJOCO_GL; {APT_LINE} (conda: {CONDA_LINE})"
    return None
