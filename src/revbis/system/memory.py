"""How much memory this process may use, and refusals before it is too late."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from revbis.system.words import in_words as in_words  # also for those who import this module

_LOG = logging.getLogger("revbis")
_SAY_ABOVE = 100_000_000
_PROC, _GROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_LIMITS = (  # of version 2 and version 1
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)


def available_bytes() -> int:
    """Bytes that can still be allocated: the least of the machine's and the control groups'."""
    free = [_machine_bytes()]
    for folder in control_groups("memory"):
        for limit_file, used_file in _LIMITS:
            limit, used = _read_int(folder / limit_file), _read_int(folder / used_file)
            if limit is not None and used is not None:
                free.append(max(limit - used + _reclaimable(folder / "memory.stat"), 0))
    return min(free)


def control_groups(controller: str, proc: Path = _PROC, groups: Path = _GROUPS) -> list[Path]:
    """The folders of this process's control group and of those around it, of both versions.

    Args:
        controller: "memory" or "cpu".
        proc: Where the system tells about processes.
        groups: Where control groups are.
    """
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    folders = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = groups / controller if controllers else groups
        here = top / path.strip("/")
        folders += [each for each in (here, *here.parents) if each.is_relative_to(top)]
    return folders


def ensure_fits(needed: int, what: str, remedy: str) -> None:
    """Says how much memory `what` takes when that is much, and refuses what cannot fit.

    Raises:
        MemoryError: With the sizes and the remedy.
    """
    free = available_bytes()
    if needed > free:
        raise MemoryError(
            f"{what} takes {in_words(needed)}, but only {in_words(free)} is free; {remedy}"
        )
    if needed >= _SAY_ABOVE:
        _LOG.warning("%s takes %s of memory (%s is free)", what, in_words(needed), in_words(free))


def resident_bytes() -> int:
    """Memory this process holds now; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _machine_bytes() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _reclaimable(stat_file: Path) -> int:
    """Page cache that counts as used but is given back when needed."""
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
