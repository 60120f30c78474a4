"""Commands that must be refused."""

import pytest

from revbis.cli import main


def fails(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Runs a command that must be refused; returns the one line it says."""
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    error = capsys.readouterr().err.strip()
    assert "Traceback" not in error
    return error
