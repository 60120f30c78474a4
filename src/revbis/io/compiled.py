"""The only place that calls Numba: a typed decorator."""

from collections.abc import Callable
from typing import Any, TypeVar, cast
from warnings import warn

import numba

F = TypeVar("F", bound=Callable[..., object])
_OPTIONS = {"nogil": True, "fastmath": {"reassoc", "contract"}, "error_model": "numpy"}


def compiled(function: F) -> F:
    """Compiles to machine code on the first call, cached on disk, without holding the GIL.

    Sums may be reassociated; every error bound allows for it. The cache depends on the file of the
    function, not on those of the compiled functions it calls: after editing a callee in another
    file, clear __pycache__. If nothing can be cached, each process compiles again.
    """
    try:
        dispatcher = numba.njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # no writable folder
        return cast("F", numba.njit(**_OPTIONS)(function))
    _tolerate_full_disks(dispatcher)
    return cast("F", dispatcher)


def _tolerate_full_disks(dispatcher: Any) -> None:
    """Warns if the cache cannot be written; Numba would let the call fail."""
    cache = dispatcher._cache  # noqa: SLF001
    save = cache.save_overload

    def save_if_possible(signature: object, data: object) -> None:
        try:
            save(signature, data)
        except OSError as error:
            reason = error.strerror or error
            warn(f"compiled code cannot be kept in {cache.cache_path}: {reason}", stacklevel=2)

    cache.save_overload = save_if_possible
