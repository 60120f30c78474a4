"""Runs made by earlier revisions load, resume and report.

fixtures/run-0.1.0 was made at 6193def: tests.runs:Walk from vectors, simsr-rev, 800 frames,
stopped at frame 488.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.runs import evaluations

from revbis.analysis.page import write_page
from revbis.analysis.study import read_study
from revbis.runs.config import Config
from revbis.runs.run import open_run, train

FIXTURES = Path(__file__).parents[1] / "fixtures"
pytestmark = pytest.mark.env("gym", gl=False)


@pytest.fixture
def run(tmp_path):
    shutil.copytree(FIXTURES / "run-0.1.0", tmp_path / "runs")
    (path,) = (tmp_path / "runs").rglob("config.json")
    return Config.read(path).with_settings(out=tmp_path / "runs")


def test_its_agent_acts(run):
    _, agent, *_ = open_run(run.directory, trust=True)
    action = agent.act(np.zeros(2, np.float32), 0, explore=False)
    assert action.shape == (1,) and np.isfinite(action).all()


def test_it_resumes(run):
    before = evaluations(run)
    assert [record["frames"] for record in before] == [0, 400]
    assert train(run)
    after = evaluations(run)
    assert after[:2] == before
    assert [record["frames"] for record in after] == [0, 400, 800]
    assert "processor" not in json.loads((run.directory / "run.json").read_text())  # of its start


@pytest.mark.parametrize(("mixed", "precision"), [(False, "float32"), (True, "bfloat16")])
def test_its_mixed_precision_is_read_as_a_precision(run, mixed, precision):
    path = run.directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"mixed_precision": mixed}))
    assert Config.read(path).agent.precision == precision


def test_a_setting_that_is_gone_is_passed_over(run):
    path = run.directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"prefetch": True}))
    assert Config.read(path).with_settings(out=run.out) == run
    assert train(run)


def test_it_is_on_the_page(run, tmp_path):
    page = write_page(read_study([run.out]), tmp_path / "page").read_text()
    assert "simsr-rev" in page
