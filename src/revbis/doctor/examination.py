"""Examines this machine: Python, torch, cores, memory and disk here, the rest by its own module."""

from __future__ import annotations

import math
import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from revbis.doctor import process
from revbis.doctor.drawing import chosen_backend, examine_backend
from revbis.doctor.packages import EXTRAS, examine_numpy, examine_package, tested, versioned
from revbis.doctor.report import Finding, Health, Report
from revbis.system.words import in_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from revbis.doctor.process import Answer

_LITTLE = 2_000_000_000  # bytes: less than torch with a small replay buffer, or some checkpoints


def examine(report_step: Callable[[str], None] = lambda _: None) -> Report:
    """Examines this machine; what may crash is tried in other processes.

    Args:
        report_step: Called with each step, before it is taken.
    """
    report_step("asking which OpenGL backend training would use")
    chosen, facts = chosen_backend(), process.ask("machine")
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
        torch = pool.submit(process.ask, "torch")
        packages = [pool.submit(examine_package, name, environment) for name in EXTRAS]
    return Report(
        tuple(_machine(facts, torch.result())),
        tuple(drawing),
        (examine_numpy(), *(each.result() for each in packages)),
        chosen,
        os.environ.get("MUJOCO_GL", ""),
    )


def _machine(facts: Answer, torch: Answer) -> list[Finding]:
    python = Finding("python", "ok", f"{platform.python_version()} ({sys.executable})")
    findings = [python, _torch(torch, facts.get("nvidia"))]
    if "error" in facts:
        return [*findings, Finding("machine", "broken", facts["error"])]
    free, total = facts["memory free"], facts["memory"]
    detail = f"{in_words(free)} free of {in_words(total)}"
    fix = "stop other programs, or raise the container's limit"
    findings += [_threads(facts, torch), _bfloat16(facts), _room("memory", free, detail, fix)]
    for path, free in facts["disk free"].items():
        detail = f"{in_words(free)} free in {path}"
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
