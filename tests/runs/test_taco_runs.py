"""Runs of TACO: resume, records, the page, neighbours."""

import pytest
from tests.agents.tdmpc import assert_same_state
from tests.runs import evaluations, networks, stop_after, tiny_config

from revbis.analysis.page import write_page
from revbis.analysis.study import read_study
from revbis.cli import main
from revbis.io.files import read_records
from revbis.runs.run import train

WALK = {"task": "tests.runs:Walk", "quality": "full", "method": "taco", "frames": 640}
LOSSES = {f"objective/{name}_loss" for name in ("taco", "curl", "reward", "representation")}


MODES = [("state", "alternating"), ("pixels", "balanced")]


@pytest.mark.parametrize(("observation", "mode"), MODES)
def test_a_run_resumes_exactly_in_the_middle_of_an_episode(tmp_path, observation, mode):
    settings = WALK | {"observation": observation, "mode": mode}
    whole, parts = (tiny_config(tmp_path / name, **settings) for name in ("whole", "parts"))
    assert train(whole)
    assert not train(parts, **stop_after(43))
    assert train(parts)
    assert evaluations(parts) == evaluations(whole)
    assert any(name.startswith("tokens.") for name in networks(whole))
    assert_same_state(networks(parts), networks(whole))


def test_records_page_and_pictures_show_what_it_reports(tmp_path, capsys):
    config = tiny_config(tmp_path / "runs", **WALK | {"observation": "pixels"})
    assert train(config)
    last = read_records(config.directory / "train.jsonl")[-1]
    accuracies = {"objective/taco_accuracy", "objective/curl_accuracy"}
    assert last.keys() >= LOSSES | accuracies | {"objective/gradient_share"}
    assert "c" not in last and "objective/c" not in last
    assert all(line["status"] == {} for line in evaluations(config))
    page = write_page(read_study([tmp_path / "runs"]), tmp_path / "page").read_text()
    assert "objective/taco_loss" in page and '"c":' not in page
    assert "<th>c</th>" not in page
    main(["neighbours", "--trust", str(config.directory), "--queries", "2", "--neighbours", "2"])
    assert "neighbours" in capsys.readouterr().out
