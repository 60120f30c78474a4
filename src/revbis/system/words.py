"""Numbers and times as a person would say them."""

from __future__ import annotations


def in_words(size: float) -> str:
    """A number of bytes, with three digits and a unit."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def in_time(seconds: float) -> str:
    """A duration, in its two largest units."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 100:
        return f"{hours // 24} days {hours % 24} h"
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"
