"""The projected time of Dreamer-v3's runs, where sheeprl is installed."""

from functools import partial

import pytest
from tests.agents.test_dreamerv3 import needs_sheeprl

from revbis.cli import main
from revbis.sweep.measure import measure_speed

pytestmark = needs_sheeprl


@pytest.mark.slow
@pytest.mark.parametrize("observation", ["pixels", "state"])
def test_the_time_of_a_run_is_projected(tmp_path, capsys, monkeypatch, observation):
    patient = partial(measure_speed, seconds=300)  # a busy machine counts as well
    monkeypatch.setattr("revbis.cli.sweep.measure_speed", patient)
    words = ["--tasks", "tests.agents.dreamer:Dot", "--methods", "dreamerv3", "--seeds", "1"]
    words += ["--set", f"observation={observation}", "sequence_length=10", "quality=full"]
    main(["sweep", *words, "--out", str(tmp_path), "--measure"])
    printed = capsys.readouterr()
    assert "warning" not in printed.err and " per update" in printed.err
    assert "as measured here just now" in printed.out
