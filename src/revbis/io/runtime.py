"""Process-wide settings that determine how fast PyTorch runs on a CPU."""

from __future__ import annotations

import ctypes
import os
import sys

from revbis.io import schema

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_KEEP_BELOW = 1 << 30


def prepare(threads: int | None = None) -> None:
    """Prepares this process for training; call it before torch is imported.

    - Waiting threads sleep instead of spinning, which would starve other runs on the same cores.
      OpenMP reads this when it is loaded, with torch.
    - Freed memory is kept; see `keep_freed_memory`.
    - Denormal numbers are flushed to 0. Threads inherit this from the one that starts them.

    Args:
        threads: Number of threads for torch; None leaves it to torch.

    Raises:
        ValueError: If threads is below 1.
    """
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    keep_freed_memory()
    import numpy as np
    import torch

    for kind in (np.float16, np.float32, np.float64, np.longdouble):
        np.finfo(kind)  # computed now and cached: once denormals are flushed it would be wrong
    torch.set_flush_denormal(True)
    use_threads(threads)


def use_threads(threads: int | None) -> None:
    """Sets torch's number of threads; None leaves it to torch.

    Raises:
        ValueError: If threads is below 1.
    """
    if threads is not None:
        import torch

        torch.set_num_threads(schema.integer(threads, "threads", 1))


def keep_freed_memory() -> bool:
    """Makes glibc keep freed blocks below 1 GB; returns whether it does.

    By default it returns large blocks to the system at once and gets them back, page by page, for
    the next tensor: page faults then cost as much as the arithmetic. Larger blocks, such as a
    replay buffer's, are still returned.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _KEEP_BELOW) and mallopt(_TRIM_THRESHOLD, 2**31 - 1))
