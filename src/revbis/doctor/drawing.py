"""The OpenGL backends: whether each draws off screen, how fast, and how to fix it."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from revbis.doctor import process
from revbis.doctor.report import Finding, Health
from revbis.envs.rendering import CONDA_LINE

_APT = {"egl": "libegl1 libgl1", "osmesa": "libosmesa6 libgl1"}
_ON_SCREEN = ("glx", "on", "enable", "enabled", "true", "1")  # MuJoCo's other names for glfw
_SOFTWARE = re.compile("llvmpipe|softpipe|swrast|software|swiftshader", re.IGNORECASE)


def chosen_backend() -> str:
    """The backend that training would use; empty if there is none."""
    name = str(process.ask("chosen").get("backend", ""))
    return "glfw" if name in _ON_SCREEN else name


def examine_backend(name: str, gpu: str | None) -> Finding:
    """Draws with a backend.

    Args:
        name: The backend.
        gpu: Driver version of an NVIDIA GPU, empty if unknown; None if there is no GPU.
    """
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if name == "glfw" and sys.platform == "linux" and not screen:
        return Finding(name, "not needed", "needs a screen (DISPLAY); not needed for training")
    answer = process.ask("draw", MUJOCO_GL=name)
    if answer.get("absent") == "mujoco":
        library = "" if name == "glfw" else "the system library is installed, but "
        return Finding(name, "not tried", f"{library}drawing needs mujoco, which is not installed")
    if "error" in answer:
        health: Health = "broken" if answer.get("library", True) else "missing"
        return Finding(name, health, answer["error"], _fixes(name, health, gpu))
    software = _SOFTWARE.search(answer["renderer"]) is not None
    detail = f"{answer['renderer']} by {answer['vendor']}{', in software' if software else ''}"
    detail += f"; {answer['full']:.0f} frames/s in full quality, {answer['fast']:.0f} in fast"
    if software and name == "egl" and gpu is not None:
        detail += "; this machine has an NVIDIA GPU, which draws much faster"
        return Finding(name, "warning", detail, _gpu_fixes(gpu))
    return Finding(name, "ok", detail)


def _fixes(name: str, health: Health, gpu: str | None) -> tuple[str, ...]:
    platform = os.environ.get("PYOPENGL_PLATFORM", "")
    if platform and platform != name:
        return ("unset PYOPENGL_PLATFORM",)
    if name not in _APT:
        return ()
    install = f"{_as_root()}apt-get install -y {_APT[name]}"
    both = (install, CONDA_LINE) if shutil.which("apt-get") else (CONDA_LINE, install)
    if os.environ.get("MUJOCO_EGL_DEVICE_ID") and name == "egl":
        return ("unset MUJOCO_EGL_DEVICE_ID", *both)
    return (*_gpu_fixes(gpu), *both) if gpu is not None and health == "broken" else both


def _gpu_fixes(driver: str) -> tuple[str, ...]:
    """How to install the driver's OpenGL on the machine, or in a container."""
    if _in_container():
        return ("docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=all ...",)
    branch = driver.split(".")[0] or "<driver version>"
    return (f"{_as_root()}apt-get install -y libnvidia-gl-{branch}",)


def _in_container() -> bool:
    return any(Path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv"))


def _as_root() -> str:
    """The prefix of a command that needs root."""
    return "" if os.geteuid() == 0 else "sudo "
