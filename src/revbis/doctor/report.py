"""What this machine can do: its parts, drawing off screen, simulators, and how to fix each."""

from __future__ import annotations

import math
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

from revbis.doctor.probe import SIZE, Answer, ask
from revbis.envs.rendering import CONDA_LINE
from revbis.system.extras import install_line
from revbis.system.words import in_words

State = Literal["ok", "warning", "missing", "broken", "not tried", "not needed"]
SUITES = ("dm_control", "metaworld")
# Each package that is not of the core, and the extra that brings it.
EXTRAS = {
    "gymnasium": "gym",
    "mujoco": "dmc",
    "dm_control": "dmc",
    "metaworld": "metaworld",
    "ray": "sweep",
    "av": "video",
}
_OPTIONAL = {"ray": "for sweeps over many machines", "av": "for videos"}
_APT = {"egl": "libegl1 libgl1", "osmesa": "libosmesa6 libgl1"}
_ON_SCREEN = ("glx", "on", "enable", "enabled", "true", "1")  # other names of glfw for MuJoCo
_SOFTWARE = re.compile("llvmpipe|softpipe|swrast|software|swiftshader", re.IGNORECASE)
_LITTLE = (
    2_000_000_000  # bytes: less than torch and a small replay buffer take, or some checkpoints
)


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Args:
        name: Of the part.
        state: How it is.
        said: What was found, in words.
        fixes: Ways to better it, the best first; each a line to type.
    """

    name: str
    state: State
    said: str
    fixes: tuple[str, ...] = ()

    @property
    def works(self) -> bool:
        """Whether training can use it."""
        return self.state in ("ok", "warning")


@dataclass(frozen=True)
class Report:
    """Everything that was found.

    Args:
        machine: Python, torch, cores, memory, disk.
        drawing: The OpenGL backends.
        packages: Simulators and optional packages.
        chosen: The backend that training would use; empty when there is none.
        asked: The user's MUJOCO_GL; empty when not set.
    """

    machine: tuple[Finding, ...]
    drawing: tuple[Finding, ...]
    packages: tuple[Finding, ...]
    chosen: str
    asked: str = ""

    def rows(self) -> dict[str, tuple[Finding, ...]]:
        """The findings under their headings."""
        used = f"training uses {self.chosen}" if self.chosen else "training finds no backend"
        used += f", because MUJOCO_GL={self.asked}" if self.asked else ""
        drawing = f"drawing, {SIZE}×{SIZE} ({used})"
        return {"machine": self.machine, drawing: self.drawing, "packages": self.packages}

    @property
    def works(self) -> bool:
        """Whether training from pixels would work."""
        return not self._blockers()

    @property
    def verdict(self) -> str:
        """The last line: whether training works, or what to do first."""
        blockers = self._blockers()
        if blockers:
            why = "; ".join(reason for reason, _ in blockers)
            steps = dict.fromkeys(fix for _, fix in blockers if fix)  # each once, in order
            advice = f"; do this: {' && '.join(steps)}" if steps else ""
            return f"training would not work: {why}{advice}"
        suites = " and ".join(name for name in SUITES if self._found(name).works)
        return f"training works: {suites}, drawn with {self.chosen}"

    def _found(self, name: str) -> Finding:
        every = self.machine + self.drawing + self.packages
        nothing = Finding(name, "missing", "there is no such part")
        return next((finding for finding in every if finding.name == name), nothing)

    def _blockers(self) -> list[tuple[str, str]]:
        """Reasons why training would fail, each with the line that removes it."""
        found = []
        if not self._found("torch").works:
            found.append(self._blocker("torch"))
        if not any(self._found(name).works for name in SUITES):
            states = ", ".join(f"{name} is {self._found(name).state}" for name in SUITES)
            fix = _first(self._found(SUITES[0]).fixes)  # brings gymnasium too
            found.append((f"no simulator works ({states})", fix))
        elif not self._found("gymnasium").works:
            found.append(self._blocker("gymnasium"))
        return found + self._drawing_blockers()

    def _drawing_blockers(self) -> list[tuple[str, str]]:
        chosen = self._found(self.chosen)
        if chosen.works or chosen.state == "not tried":
            return []  # not tried: MuJoCo is missing, which is a reason already
        working = [finding.name for finding in self.drawing if finding.works]
        if working:
            return [(f"{self.chosen} cannot draw here", f"export MUJOCO_GL={working[0]}")]
        fixes = [fix for finding in self.drawing for fix in finding.fixes]
        return [("no OpenGL backend draws", _first(tuple(fixes)))]

    def _blocker(self, name: str) -> tuple[str, str]:
        finding = self._found(name)
        return f"{name} is {finding.state}", _first(finding.fixes)


def examine(say: Callable[[str], None] = lambda text: None) -> Report:
    """Looks at this machine; what may crash is tried in other processes.

    Args:
        say: Is told what is being tried.
    """
    say("asking which OpenGL backend training would use")
    chosen, facts = _chosen(), ask("machine")
    gpu = facts.get("nvidia")
    drawing = []
    for name in ("egl", "osmesa", "glfw") if sys.platform == "linux" else ("glfw",):
        say(f"drawing with {name}")
        drawing.append(_backend(name, gpu))
    works = any(finding.works and finding.name == chosen for finding in drawing)
    # Without a backend the simulators must still be tried: importing one would load it.
    environment = {} if works else {"MUJOCO_GL": "disable"}
    say("trying torch and the simulators")
    with ThreadPoolExecutor(max_workers=2) as pool:
        torch = pool.submit(ask, "torch")
        packages = [pool.submit(_package, name, environment) for name in EXTRAS]
    return Report(
        tuple(_machine(facts, torch.result())),
        tuple(drawing),
        (_versioned("numpy", version("numpy")), *(each.result() for each in packages)),
        chosen,
        os.environ.get("MUJOCO_GL", ""),
    )


def _machine(facts: Answer, torch: Answer) -> list[Finding]:
    python = Finding("python", "ok", f"{platform.python_version()} ({sys.executable})")
    found = [python, _torch(torch, facts.get("nvidia"))]
    if "error" in facts:
        return [*found, Finding("machine", "broken", facts["error"])]
    free, total = facts["memory free"], facts["memory"]
    said = f"{in_words(free)} free of {in_words(total)}"
    memory = _roomy("memory", free, said, "stop other programs, or raise the container's limit")
    found += [_threads(facts, torch), memory]
    for path, free in facts["disk free"].items():
        said = f"{in_words(free)} free in {path}"
        if path in facts["read only"]:
            fix = "run from a folder you may write to"
            found.append(Finding("disk", "warning", f"{said}, which is read-only", (fix,)))
        else:
            found.append(_roomy("disk", free, said, "free some, or run from another folder"))
    return found


def _roomy(name: str, free: int, said: str, fix: str) -> Finding:
    if free >= _LITTLE:
        return Finding(name, "ok", said)
    return Finding(name, "warning", f"{said}: too little for most runs", (fix,))


def _torch(answer: Answer, gpu: str | None) -> Finding:
    """Torch and its device; a GPU that it cannot use is a warning."""
    fix = f'pip install "torch{tested_versions().get("torch", "")}"'
    if "error" in answer:
        state: State = "missing" if answer.get("absent") == "torch" else "broken"
        return Finding("torch", state, answer["error"], (fix,))
    said = f"{answer['version']}, device {answer['device']} {answer['device name']}".rstrip()
    if "device error" in answer:
        return Finding("torch", "broken", f"{said}: {answer['device error']}", (fix,))
    if gpu is None or answer["device"] == "cuda":
        return _versioned("torch", answer["version"], said)
    said += "; this machine has an NVIDIA GPU, which this torch cannot use"
    if answer["cuda build"]:
        return Finding("torch", "warning", said, ("nvidia-smi  # does the driver answer?",))
    return Finding("torch", "warning", said, (fix.replace("install", "install --force-reinstall"),))


def _threads(facts: Answer, torch: Answer) -> Finding:
    """Cores that may be used; more threads than these wait for each other."""
    quota = math.inf if facts["quota"] is None else math.ceil(facts["quota"])
    usable = max(1, min(facts["affinity"], quota))
    said = f"{usable} of {facts['cores']} cores may be used"
    threads = torch.get("threads", usable)
    said += f"; torch uses {threads} thread{'s' if threads > 1 else ''}"
    said += f", OMP_NUM_THREADS is {os.environ.get('OMP_NUM_THREADS') or 'not set'}"
    if threads > usable:
        return Finding("threads", "warning", said, (f"export OMP_NUM_THREADS={usable}",))
    return Finding("threads", "ok", said)


def _chosen() -> str:
    answer = ask("chosen")
    name = str(answer.get("backend", ""))
    return "glfw" if name in _ON_SCREEN else name


def _backend(name: str, gpu: str | None) -> Finding:
    """A backend, tried; `gpu` is the driver version of an NVIDIA GPU, None when there is none."""
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if name == "glfw" and sys.platform == "linux" and not screen:
        return Finding(name, "not needed", "needs a screen (DISPLAY); not needed for training")
    answer = ask("draw", MUJOCO_GL=name)
    if answer.get("absent") == "mujoco":
        found = "" if name == "glfw" else "the system's library is there, but "
        return Finding(name, "not tried", f"{found}drawing needs mujoco, which is not installed")
    if "error" in answer:
        state: State = "broken" if answer.get("library", True) else "missing"
        return Finding(name, state, answer["error"], _drawing_fixes(name, state, gpu))
    software = _SOFTWARE.search(answer["renderer"]) is not None
    said = f"{answer['renderer']} by {answer['vendor']}{', in software' if software else ''}"
    said += f"; {answer['full']:.0f} frames/s in full quality, {answer['fast']:.0f} in fast"
    if software and name == "egl" and gpu is not None:
        said += "; this machine has an NVIDIA GPU, which draws much faster"
        return Finding(name, "warning", said, _gpu_fixes(gpu))
    return Finding(name, "ok", said)


def _drawing_fixes(name: str, state: State, gpu: str | None) -> tuple[str, ...]:
    platform = os.environ.get("PYOPENGL_PLATFORM", "")
    if platform and platform != name:
        return ("unset PYOPENGL_PLATFORM",)
    if name not in _APT:
        return ()
    install = f"{_as_root()}apt-get install -y {_APT[name]}"
    both = (install, CONDA_LINE) if shutil.which("apt-get") else (CONDA_LINE, install)
    if os.environ.get("MUJOCO_EGL_DEVICE_ID") and name == "egl":
        return ("unset MUJOCO_EGL_DEVICE_ID", *both)
    return (*_gpu_fixes(gpu), *both) if gpu is not None and state == "broken" else both


def _gpu_fixes(driver: str) -> tuple[str, ...]:
    """How the driver's OpenGL gets onto the machine, or into a container."""
    if _in_container():
        return ("docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=all ...",)
    branch = driver.split(".")[0] or "<driver version>"
    return (f"{_as_root()}apt-get install -y libnvidia-gl-{branch}",)


def _in_container() -> bool:
    return any(Path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv"))


def _as_root() -> str:
    """What a line that needs root begins with."""
    return "" if os.geteuid() == 0 else "sudo "


def _package(name: str, environment: dict[str, str]) -> Finding:
    """A package that is not of the core: its version, and for a simulator that it steps."""
    try:
        found = version(name)
    except PackageNotFoundError:
        state: State = "not needed" if name in _OPTIONAL else "missing"
        purpose = f"; {_OPTIONAL[name]} only" if name in _OPTIONAL else ""
        return Finding(name, state, f"not installed{purpose}", _install(name))
    if name not in _OPTIONAL:
        answer = ask(name, **environment)
        if "error" in answer:
            return Finding(name, "broken", f"{found}: {answer['error']}", _install(name))
    return _versioned(name, found)


def _install(name: str) -> tuple[str, ...]:
    try:
        return (install_line(EXTRAS[name]),)
    except (ValueError, PackageNotFoundError):  # an editable install older than its pyproject
        return (f'pip install "{name}"',)


def _versioned(name: str, found: str, said: str = "") -> Finding:
    """A package that works, with a warning when its version is not a tested one."""
    wanted = tested_versions().get(_plain(name), "")
    if accepts(wanted, found):
        return Finding(name, "ok", said or found)
    said = f"{said or found}; revbis is tested with {name}{wanted}"
    return Finding(name, "warning", said, (f'pip install "{name}{wanted}"',))


def tested_versions() -> dict[str, str]:
    """By package the versions that revbis asks for, such as `<2.4,>=2.0`."""
    try:
        lines = requires("revbis") or []
    except PackageNotFoundError:
        return {}
    parts = (re.match(r"([\w.-]+)(?:\[.*?\])?([^;]*)", line) for line in lines)
    return {_plain(part[1]): part[2].strip() for part in parts if part}


def accepts(wanted: str, found: str) -> bool:
    """Whether a version meets a requirement such as `<2.4,>=2.0`."""
    for sign, text in re.findall(r"(==|>=|<=|<|>)\s*([\d.]+)", wanted):
        have, bound = _numbers(found), _numbers(text)
        compared = (have > bound) - (have < bound)
        if compared not in {"==": (0,), ">=": (0, 1), "<=": (-1, 0), "<": (-1,), ">": (1,)}[sign]:
            return False
    return True


def _numbers(text: str) -> list[int]:
    """2.13.0+cpu as [2, 13]: zeros at the end mean nothing."""
    release = re.match(r"[\d.]*", text)
    numbers = [int(part) for part in (release[0] if release else "").split(".") if part]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return numbers


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _first(fixes: tuple[str, ...]) -> str:
    return fixes[0] if fixes else ""
