import errno

import numba
import pytest

from revbis.io.compiled import compiled


def test_a_full_disk_costs_the_cache_and_not_the_result(monkeypatch) -> None:
    @compiled
    def double(x: float) -> float:
        return 2 * x

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(double._cache._impl, "reduce", full)
    with pytest.warns(UserWarning, match="compiled code cannot be kept in .*: No space left"):
        assert double(1.5) == 3.0


def test_without_a_folder_to_cache_in_it_still_compiles(monkeypatch) -> None:
    njit = numba.njit

    def refuse_caching(*args: object, cache: bool = False, **options: object) -> object:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return njit(*args, **options)

    monkeypatch.setattr(numba, "njit", refuse_caching)

    @compiled
    def double(x: float) -> float:
        return 2 * x

    assert double(1.5) == 3.0
