"""The machine: memory that this process may use, what the processor is and what it can do."""

from __future__ import annotations

import logging
import os
import platform
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from revbis.io.text import format_bytes

if TYPE_CHECKING:
    from revbis.io.schema import AboutFile

_LOG = logging.getLogger("revbis")
_SAY_ABOVE = 100_000_000
_PROC, _GROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_LIMITS = (  # of version 2 and version 1
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)


def usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def total_bytes() -> int:
    """Bytes that this process may use: the least of the machine's and the control groups'."""
    folders = control_groups("memory")
    limits = [_read_int(folder / name) for folder in folders for name, _ in _LIMITS]
    return min([_machine_bytes()[0], *(limit for limit in limits if limit is not None)])


def available_bytes() -> int:
    """Bytes that can still be allocated: the least of the machine's and the control groups'."""
    free = [_machine_bytes()[1]]
    for folder in control_groups("memory"):
        for limit_file, used_file in _LIMITS:
            limit, used = _read_int(folder / limit_file), _read_int(folder / used_file)
            if limit is not None and used is not None:
                free.append(max(limit - used + _reclaimable(folder / "memory.stat"), 0))
    return min(free)


def resident_bytes() -> int:
    """Memory this process occupies now; 0 if that is not known."""
    try:
        return int(psutil.Process().memory_info().rss)
    except (psutil.Error, OSError):
        return 0


def control_groups(controller: str) -> list[Path]:
    """The folders of this process's control group and its parents, of both versions.

    Args:
        controller: "memory" or "cpu".
    """
    try:
        lines = (_PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    folders = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = _GROUPS / controller if controllers else _GROUPS
        here = top / path.strip("/")
        folders += [each for each in (here, *here.parents) if each.is_relative_to(top)]
    return folders


def ensure_fits(needed: int, what: str, remedy: str) -> None:
    """Logs how much memory `what` takes if that is much, and refuses what does not fit.

    Raises:
        MemoryError: With the sizes and the remedy.
    """
    free = available_bytes()
    if needed > free:
        raise MemoryError(
            f"{what} takes {format_bytes(needed)}, but only {format_bytes(free)} is free; {remedy}"
        )
    if needed >= _SAY_ABOVE:
        _LOG.warning(
            "%s takes %s of memory (%s is free)", what, format_bytes(needed), format_bytes(free)
        )


def _machine_bytes() -> tuple[int, int]:
    """The machine's memory, and how much of it is available: all of it if that is not known."""
    try:
        memory = psutil.virtual_memory()
    except (psutil.Error, OSError):
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return total, total
    return int(memory.total), int(memory.available)


def _reclaimable(stat_file: Path) -> int:
    """Page cache that counts as used but is released when needed."""
    try:
        fields = dict(line.split() for line in stat_file.read_text().splitlines())
        return int(fields.get("inactive_file", 0))
    except (OSError, ValueError):
        return 0


def _read_int(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


_FACTS = Path("/proc/cpuinfo")
_NUMBERS = ("cpu family", "model", "stepping", "CPU implementer", "CPU part")  # x86, then Arm
_ZEN_5 = 26  # its family


def processor() -> str:
    """The processor's name, as the operating system reports it.

    On Linux with the numbers of its family and model: virtual machines often have no other name
    than "AMD EPYC" or "Intel Xeon Processor".
    """
    facts = _facts()
    if not facts:
        return _brand() or platform.processor() or platform.machine()
    name = facts.get("model name") or platform.processor() or platform.machine()
    return ", ".join([name, *(f"{key} {facts[key]}" for key in _NUMBERS if key in facts)])


def mkl_lacks_avx512() -> bool:
    """Whether oneDNN multiplies 512 bits at once here, and MKL 256: on AMD's since Zen 5."""
    facts = _facts()
    amd = facts.get("vendor_id") == "AuthenticAMD"
    recent = amd and int(facts.get("cpu family", 0)) >= _ZEN_5
    return recent and "avx512f" in facts.get("flags", "").split()


def _facts() -> dict[str, str]:
    """What Linux says of the first processor; nothing elsewhere."""
    try:
        first, _, _ = _FACTS.read_text().partition("\n\n")
    except OSError:
        return {}
    lines = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def _brand() -> str:
    """What macOS calls the processor; empty elsewhere."""
    if platform.system() != "Darwin":
        return ""
    command = ["sysctl", "-n", "machdep.cpu.brand_string"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def thread_counts() -> dict[str, int]:
    """How many threads torch uses for an operator, and how many cores the machine has."""
    import torch

    return {"torch": torch.get_num_threads(), "cores": os.cpu_count() or 1}


_TORCH = {  # parts of torch's report, by name
    "": r"BLAS_INFO=(\w+)",
    "MKL": r"Math Kernel Library Version ([\w.]+)",
    "oneDNN": r"(?:MKL-DNN|oneDNN) v([\w.]+)",
    "instructions": r"CPU capability usage: (\w+)",
}


def blas() -> dict[str, str]:
    """The linear algebra of numpy and of torch, as they report it."""
    import numpy as np
    import torch

    built = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    report = torch.__config__.show()
    seen = {name: re.search(pattern, report) for name, pattern in _TORCH.items()}
    parts = [f"{name} {match[1]}".strip() for name, match in seen.items() if match]
    return {"numpy": f"{built['name']} {built['version']}", "torch": ", ".join(parts)}


def conditions(about: AboutFile) -> dict[str, str]:
    """What a run's numbers depend on beside its settings, by name, as far as it is recorded.

    The processor, torch's threads, both BLAS libraries, and the versions of torch, numpy and the
    simulators.

    Args:
        about: The run's run.json.
    """
    found = {"processor": about["processor"]} if "processor" in about else {}
    if "torch" in about.get("threads", {}):
        found["threads"] = str(about["threads"]["torch"])
    found |= {f"BLAS of {name}": value for name, value in about.get("blas", {}).items()}
    versions = about.get("versions", {}).items()
    return found | {name: value for name, value in versions if name not in ("revbis", "python")}


_UNITS = ("amx_bf16", "avx512_bf16", "bf16")  # Intel, Intel and AMD, Arm; the fastest first


@cache
def bfloat16_units() -> str:
    """The processor's instructions for bfloat16 by name; empty if it has none or is unknown."""
    try:
        words = set(_FACTS.read_text().split())
    except OSError:  # not Linux
        return ""
    return next((name for name in _UNITS if name in words), "")


def check_bfloat16(device: str) -> None:
    """Refuses bfloat16 where it would be slower than float32.

    Args:
        device: Type of the device of the networks.

    Raises:
        ValueError: If it is a CPU without instructions for bfloat16.
    """
    if device == "cpu" and not bfloat16_units():
        raise ValueError(
            "precision is bfloat16, for which this processor has no instructions (avx512_bf16 or "
            "amx_bf16): use precision float32, or a GPU"
        )
