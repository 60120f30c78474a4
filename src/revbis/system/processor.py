"""What this machine's processor can do."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_FACTS = Path("/proc/cpuinfo")
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
