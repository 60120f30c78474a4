import os

import pytest

# POT imports PyTorch when it is there, which takes seconds and serves no test here.
os.environ.setdefault("POT_BACKEND_DISABLE_PYTORCH", "1")


@pytest.fixture
def free_memory(monkeypatch):
    """Sets how many bytes the library believes to be free."""

    def set_free(size):
        # `ensure_fits` looks the name up in its module, `families` among its own imports.
        monkeypatch.setattr("revbis.io.machine.available_bytes", lambda: size)
        monkeypatch.setattr("revbis.tabular.families.available_bytes", lambda: size)

    return set_free
