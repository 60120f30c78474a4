"""How much memory this process may use, and refusals before it is too late."""

from __future__ import annotations

import logging
import os
from pathlib import Path

_LOG = logging.getLogger("revbis")
_SAY_ABOVE = 100_000_000
_CGROUP_FILES = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def available_bytes() -> int:
    """Bytes that can still be allocated: the least of the machine's and the control group's."""
    free = [_machine_bytes()]
    for limit_file, used_file in _CGROUP_FILES:
        limit, used = _read_int(limit_file), _read_int(used_file)
        if limit is not None and used is not None:
            used -= _reclaimable(Path(used_file).with_name("memory.stat"))
            free.append(max(limit - used, 0))
    return min(free)


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


def in_words(size: float) -> str:
    """A number of bytes as a person would say it."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


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


def _read_int(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None
