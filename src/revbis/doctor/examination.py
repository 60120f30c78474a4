"""Examines this machine: what works, in which version and how fast, and how to fix the rest."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from revbis.envs import suites
from revbis.envs.rendering import CONDA_LINE
from revbis.envs.suites import SUITES
from revbis.io.plugins import (
    install_line,
    is_alone,
    remedy,
    requirements,
    requirements_of,
    unavailable,
)
from revbis.io.text import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

Health = Literal["ok", "warning", "missing", "broken", "not tried", "not needed"]
Answer = dict[str, Any]

MARK = "revbis-doctor:"  # begins the line with the answer
SIZE = 84  # of the images that are drawn
_PATIENCE = 120.0  # importing from a cold network disk takes a minute
_LITTLE = 2_000_000_000  # bytes: less than torch with a small replay buffer, or some checkpoints
_APT = {"egl": "libegl1 libgl1", "osmesa": "libosmesa6 libgl1"}
_ON_SCREEN = ("glx", "on", "enable", "enabled", "true", "1")  # MuJoCo's other names for glfw
_SOFTWARE = re.compile("llvmpipe|softpipe|swrast|software|swiftshader", re.IGNORECASE)
_OPTIONAL = {
    "ray": "for sweeps over many machines",
    "av": "for videos",
    "sheeprl": "for the agent dreamerv3",
}
# Each package outside the core, and the extra that installs it.
EXTRAS = suites.packages() | {"ray": "sweep", "av": "video", "sheeprl": "dreamer"}


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        name: The part of the machine.
        health: Its condition.
        detail: Versions, sizes, speeds or the error.
        fixes: Commands that fix or improve it, the best first.
    """

    name: str
    health: Health
    detail: str
    fixes: tuple[str, ...] = ()

    @property
    def works(self) -> bool:
        """Whether training can use it."""
        return self.health in ("ok", "warning")

    @property
    def first_fix(self) -> str:
        """The best fix; empty if there is none."""
        return self.fixes[0] if self.fixes else ""


@dataclass(frozen=True)
class Report:
    """All findings.

    Attributes:
        machine: Python, torch, cores, memory, disk.
        drawing: The OpenGL backends.
        packages: Simulators and optional packages.
        chosen: The backend that training would use; empty if there is none.
        requested: The user's MUJOCO_GL; empty if not set.
    """

    machine: tuple[Finding, ...]
    drawing: tuple[Finding, ...]
    packages: tuple[Finding, ...]
    chosen: str
    requested: str = ""

    def sections(self) -> dict[str, tuple[Finding, ...]]:
        """The findings by heading."""
        used = f"training uses {self.chosen}" if self.chosen else "training has no backend"
        used += f", because MUJOCO_GL={self.requested}" if self.requested else ""
        drawing = f"drawing, {SIZE}×{SIZE} ({used})"
        return {"machine": self.machine, drawing: self.drawing, "packages": self.packages}

    @property
    def works(self) -> bool:
        """Whether training from pixels would work."""
        return not self._blockers()

    @property
    def verdict(self) -> str:
        """The last line: whether training would work, or what to do first."""
        blockers = self._blockers()
        if blockers:
            why = "; ".join(reason for reason, _ in blockers)
            steps = dict.fromkeys(fix for _, fix in blockers if fix)  # each once, in order
            advice = f"; to fix it: {' && '.join(steps)}" if steps else ""
            return f"training would not work: {why}{advice}"
        working = " and ".join(name for name in _simulators() if self._finding(name).works)
        return f"training works: {working}, drawn with {self.chosen}"

    def _finding(self, name: str) -> Finding:
        findings = self.machine + self.drawing + self.packages
        absent = Finding(name, "missing", "not examined")
        return next((finding for finding in findings if finding.name == name), absent)

    def _blockers(self) -> list[tuple[str, str]]:
        """Reasons why training would fail, each with the command that fixes it."""
        blockers = []
        if not self._finding("torch").works:
            blockers.append(self._blocker("torch"))
        simulators = [self._finding(name) for name in _simulators()]
        if not any(finding.works for finding in simulators):
            each = ", ".join(f"{finding.name} is {finding.health}" for finding in simulators)
            fix = simulators[0].first_fix  # installs gymnasium as well
            blockers.append((f"no simulator works ({each})", fix))
        elif not self._finding("gymnasium").works:
            blockers.append(self._blocker("gymnasium"))
        return blockers + self._drawing_blockers()

    def _drawing_blockers(self) -> list[tuple[str, str]]:
        chosen = self._finding(self.chosen)
        if chosen.works or chosen.health == "not tried":
            return []  # not tried: MuJoCo is missing, which is a reason already
        working = [finding.name for finding in self.drawing if finding.works]
        if working:
            return [(f"{self.chosen} cannot draw here", f"export MUJOCO_GL={working[0]}")]
        fixes = [fix for finding in self.drawing for fix in finding.fixes]
        return [("no OpenGL backend draws", fixes[0] if fixes else "")]

    def _blocker(self, name: str) -> tuple[str, str]:
        finding = self._finding(name)
        return f"{name} is {finding.health}", finding.first_fix


def _simulators() -> list[str]:
    """The packages of the suites that MuJoCo draws."""
    return [suite.packages[-1] for suite in SUITES.values() if suite.drawn_by_mujoco]


def examine(report_step: Callable[[str], None] = lambda _: None) -> Report:
    """Examines this machine, naming each step first; what may crash is tried in other processes."""
    report_step("asking which OpenGL backend training would use")
    chosen, facts = chosen_backend(), ask("machine")
    gpu = facts.get("nvidia")
    drawing = []
    for name in ("egl", "osmesa", "glfw") if sys.platform == "linux" else ("glfw",):
        report_step(f"drawing with {name}")
        drawing.append(examine_backend(name, gpu))
    works = any(finding.works and finding.name == chosen for finding in drawing)
    # Without a backend the simulators are still tried: importing one would load the backend.
    environment = {} if works else {"MUJOCO_GL": "disable"}
    report_step("trying torch and the simulators")
    with ThreadPoolExecutor(max_workers=2) as pool:
        torch = pool.submit(ask, "torch")
        packages = [pool.submit(examine_package, name, environment) for name in EXTRAS]
    return Report(
        tuple(_machine(facts, torch.result())),
        tuple(drawing),
        (versioned("numpy", version("numpy")), *(each.result() for each in packages)),
        chosen,
        os.environ.get("MUJOCO_GL", ""),
    )


def _machine(facts: Answer, torch: Answer) -> list[Finding]:
    python = Finding("python", "ok", f"{platform.python_version()} ({sys.executable})")
    findings = [python, _torch(torch, facts.get("nvidia"))]
    if "error" in facts:
        return [*findings, Finding("machine", "broken", facts["error"])]
    free, total = facts["memory free"], facts["memory"]
    detail = f"{format_bytes(free)} free of {format_bytes(total)}"
    fix = "stop other programs, or raise the container's limit"
    findings += [_threads(facts, torch), _bfloat16(facts), _room("memory", free, detail, fix)]
    for path, free in facts["disk free"].items():
        detail = f"{format_bytes(free)} free in {path}"
        if path in facts["read only"]:
            fix = "run from a folder that you can write to"
            findings.append(Finding("disk", "warning", f"{detail}, which is read-only", (fix,)))
        else:
            findings.append(_room("disk", free, detail, "free some, or run from another folder"))
    return findings


def _room(name: str, free: int, detail: str, fix: str) -> Finding:
    if free >= _LITTLE:
        return Finding(name, "ok", detail)
    return Finding(name, "warning", f"{detail}: too little for most runs", (fix,))


def _torch(answer: Answer, gpu: str | None) -> Finding:
    """Torch and its device; a GPU that it cannot use is a warning."""
    fix = f'pip install "torch{tested("torch")}"'
    if "error" in answer:
        health: Health = "missing" if answer.get("absent") == "torch" else "broken"
        return Finding("torch", health, answer["error"], (fix,))
    detail = f"{answer['version']}, device {answer['device']} {answer['device name']}".rstrip()
    if "device error" in answer:
        return Finding("torch", "broken", f"{detail}: {answer['device error']}", (fix,))
    if gpu is None or answer["device"] == "cuda":
        return versioned("torch", answer["version"], detail)
    detail += "; this machine has an NVIDIA GPU, which this torch cannot use"
    if answer["cuda build"]:
        return Finding("torch", "warning", detail, ("nvidia-smi  # does the driver work?",))
    reinstall = fix.replace("install", "install --force-reinstall")
    return Finding("torch", "warning", detail, (reinstall,))


def _bfloat16(facts: Answer) -> Finding:
    """Whether the processor can train in bfloat16, which no run needs."""
    units = facts["bfloat16"]
    detail = f"the processor has {units}: --precision bfloat16 is faster for large networks"
    absent = "the processor has no instructions for it: train in float32, the default"
    return Finding("bfloat16", *(("ok", detail) if units else ("not needed", absent)))


def _threads(facts: Answer, torch: Answer) -> Finding:
    """Usable cores; more threads than these wait for each other."""
    quota = math.inf if facts["quota"] is None else math.ceil(facts["quota"])
    usable = max(1, min(facts["affinity"], quota))
    threads = torch.get("threads", usable)
    detail = f"{usable} of {facts['cores']} cores usable"
    detail += f"; torch uses {threads} thread{'s' if threads > 1 else ''}"
    detail += f", OMP_NUM_THREADS is {os.environ.get('OMP_NUM_THREADS') or 'not set'}"
    if threads > usable:
        return Finding("threads", "warning", detail, (f"export OMP_NUM_THREADS={usable}",))
    return Finding("threads", "ok", detail)


def chosen_backend() -> str:
    """The backend that training would use; empty if there is none."""
    name = str(ask("chosen").get("backend", ""))
    return "glfw" if name in _ON_SCREEN else name


def examine_backend(name: str, gpu: str | None) -> Finding:
    """Draws with a backend; `gpu` is the version of an NVIDIA driver, None without a GPU."""
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if name == "glfw" and sys.platform == "linux" and not screen:
        return Finding(name, "not needed", "needs a screen (DISPLAY); not needed for training")
    answer = ask("draw", MUJOCO_GL=name)
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


def examine_package(name: str, environment: dict[str, str]) -> Finding:
    """The version of a package outside the core; a simulator is stepped too, in `environment`."""
    try:
        installed = version(name)
    except PackageNotFoundError:
        health: Health = "not needed" if name in _OPTIONAL else "missing"
        purpose = f"; {_OPTIONAL[name]} only" if name in _OPTIONAL else ""
        return Finding(name, health, f"not installed{purpose}", _install(name))
    if name in _OPTIONAL:
        return _conflict(name, installed) or versioned(name, installed)
    answer = ask(name, **environment)
    if "error" in answer:
        return Finding(name, "broken", f"{installed}: {answer['error']}", _install(name))
    conflict = _conflict(name, installed) if name in _simulators() else None
    return conflict or versioned(name, installed)


def _conflict(name: str, installed: str) -> Finding | None:
    """A warning if another package that its extra names is of a version that does not fit."""
    plain = canonicalize_name(name)
    try:
        wanted = requirements_of(EXTRAS[name])
    except (ValueError, PackageNotFoundError):  # an editable install older than its pyproject
        return None
    for other in (each for each in wanted if canonicalize_name(each.name) != plain):
        try:
            now = version(other.name)
        except PackageNotFoundError:  # a finding of its own
            continue
        if not accepts(other.specifier, now):
            detail = f"{installed}: needs {other}, but {other.name} {now} is installed"
            return Finding(name, "warning", detail, (f'pip install "{other}"',))
    return None


def versioned(name: str, installed: str, detail: str = "") -> Finding:
    """The finding for a package that works: a warning if its version is not a tested one."""
    versions = tested(name)
    if accepts(versions, installed):
        return Finding(name, "ok", detail or installed)
    detail = f"{detail or installed}; revbis is tested with {name}{versions}"
    return Finding(name, "warning", detail, (f'pip install "{name}{versions}"',))


def tested(name: str) -> SpecifierSet:
    """The versions of a package that revbis, or its extra, requires; any if it requires none.

    What other extras require beside it is a conflict of theirs.
    """
    plain = canonicalize_name(name)
    try:  # an extra's own first; on a Python where it leaves the package out, as on others
        wanted = requirements_of(EXTRAS[name]) if name in EXTRAS else []
        wanted = [*wanted, *requirements()]
    except (ValueError, PackageNotFoundError):  # an editable install older than its pyproject
        wanted = []
    matches = (each.specifier for each in wanted if canonicalize_name(each.name) == plain)
    return next(matches, SpecifierSet())


def accepts(versions: SpecifierSet, installed: str) -> bool:
    """Whether an installed version is among the versions; one that cannot be parsed is not."""
    try:
        return versions.contains(installed, prereleases=True)
    except InvalidVersion:
        return False


def _install(name: str) -> tuple[str, ...]:
    pythons = unavailable(EXTRAS[name]).get(name)
    if pythons and not is_alone(name):
        return (remedy(name, pythons),)
    try:
        line = install_line(EXTRAS[name])
        return (f"{line} && {remedy(name, pythons)}" if pythons else line,)
    except (ValueError, PackageNotFoundError):  # an editable install older than its pyproject
        return (f'pip install "{name}"',)


def ask(question: str, **environment: str) -> Answer:
    """The answer of another process with these variables; a crash or a hang is an `error`."""
    try:
        done = subprocess.run(
            _command(question),
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"hangs: no answer within {_PATIENCE:.0f} s"}
    if done.returncode < 0:
        return {"error": f"crashes ({_signal_name(-done.returncode)})"}
    marked = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if done.returncode or not marked:
        last = (done.stderr.strip() or "no error message").splitlines()[-1]
        return {"error": f"exits with code {done.returncode}: {last}"}
    answer: Answer = json.loads(marked[-1].removeprefix(MARK))
    return answer


def _command(question: str) -> list[str]:
    # -P: a file in the user's folder with the name of a package must not be imported
    return [sys.executable, "-P", "-m", "revbis.doctor.questions", question]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
