"""Tasks for the tests of sweeps."""

import os
import time
from pathlib import Path

from tests.runs import Walk

MARKER = "REVBIS_TEST_STUCK"  # names a file


class Stuck(Walk):
    """Stands still in the middle of its first life, for ever; the file tells that it does."""

    lived = 0

    def reward(self):
        self.lived += 1
        marker = Path(os.environ[MARKER])
        if self.lived == 150 and not marker.exists():
            marker.touch()
            while True:
                time.sleep(1.0)
        return super().reward()


class Broken(Walk):
    """Raises what is not the user's mistake."""

    def reward(self):
        raise RuntimeError("the device has gone")
