"""One browser for all tests of the page."""

from collections.abc import Iterator

import pytest
from tests.analysis.browser import Browser, browser


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened
