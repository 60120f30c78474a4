"""Settings of the whole process that decide how fast PyTorch runs on a CPU."""

from __future__ import annotations

import ctypes
import os
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_KEEP_BELOW = 1 << 30


def prepare(threads: int | None = None) -> None:
    """Makes this process ready to train; to be called before torch is imported.

    - Threads that wait for others sleep instead of spinning, which starves other runs on the same
      cores. OpenMP reads this when it is loaded, with torch.
    - Freed memory is kept; see `keep_freed_memory`.
    - Numbers too small for full precision count as 0. Threads inherit this from the one that
      starts them.

    Args:
        threads: How many threads torch uses; None leaves that to torch.

    Raises:
        ValueError: If threads is below 1.
    """
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    keep_freed_memory()
    import numpy as np
    import torch

    for kind in (np.float16, np.float32, np.float64, np.longdouble):
        np.finfo(kind)  # found out now and remembered: later it would miss the tiny numbers
    torch.set_flush_denormal(True)
    if threads is not None:
        torch.set_num_threads(threads)


def use_threads(threads: int | None) -> None:
    """Sets how many threads torch uses; None leaves that to torch.

    Raises:
        ValueError: If threads is below 1.
    """
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def keep_freed_memory() -> bool:
    """Tells glibc to keep freed blocks below 1 GB, and says whether it could be told.

    By default it gives large blocks back at once and gets them anew, page by page, for the next
    tensor: page faults then cost as much as the arithmetic. Larger blocks, such as a replay
    buffer's, are still the system's own.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _KEEP_BELOW) and mallopt(_TRIM_THRESHOLD, 2**31 - 1))
