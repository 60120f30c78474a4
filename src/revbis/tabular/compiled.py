"""The one place where Numba is called: a typed decorator."""

from collections.abc import Callable
from typing import TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Compiles to machine code on first call, cached on disk, interruptible by other threads.

    Sums may be reassociated; every error bound allows for it. The cache looks at the file of the
    function, not at those of the compiled functions it calls: after editing a callee in another
    file, clear __pycache__.
    """
    jit = numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"}, error_model="numpy")
    return cast(F, jit(function))
