"""The report page as a file: its numbers, its messages, its commands. In a browser: see beside."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.fake_study import fake_run, large_study, write_lines
from tests.commands import fails

from revbis.analysis.report import Media, Trainings, write_report
from revbis.analysis.report.summary import Estimate, estimate, summarise
from revbis.analysis.scores import read_study
from revbis.cli import main

ODD = "<script>alert(1)</script>"


class Page(HTMLParser):
    """What a page consists of."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self._in = ""
        self.source = path.read_text()
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in = tag

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in == "script":
            self.scripts.append(data)
        elif self._in != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    @property
    def data(self) -> dict[str, Any]:
        return json.loads(self.scripts[0])


def page_of(*folders: Path, out: Path, **options: Any) -> Page:
    return Page(write_report(read_study(folders), out, **options))


def test_the_numbers_of_the_summary(tmp_path: Path) -> None:
    fake_run(tmp_path, seed=1, returns=[0.0, 50.0, 40.0])
    fake_run(tmp_path, seed=2, returns=[0.0, 30.0, 20.0])
    (group,) = read_study([tmp_path]).groups
    found = summarise(group)
    # 40 and 20: mean 30, deviation √200, over √2. Best 50 and 30. 40,000 frames at 100 a second.
    assert found.final == Estimate(30.0, pytest.approx(10.0))
    assert found.best == Estimate(40.0, pytest.approx(10.0))
    assert found.frames == 40_000 and found.seeds == 2
    assert found.hours == pytest.approx(400 / 3600, rel=1e-4)
    assert estimate([7.0]) == Estimate(7.0, None) and estimate([]) is None


def test_seeds_are_compared_at_a_frame_that_all_have_reached(tmp_path: Path) -> None:
    fake_run(tmp_path, seed=1, returns=[0.0, 50.0, 90.0])
    fake_run(tmp_path, seed=2, returns=[0.0, 30.0, 0.0], done=0.5)
    fake_run(tmp_path, seed=3, returns=[])
    (group,) = read_study([tmp_path]).groups
    found = summarise(group)
    assert (found.frames, found.seeds) == (20_000, 2)
    assert found.final is not None and found.final.mean == 40.0
    assert found.best is not None and found.best.mean == 40.0  # not seed 1's later 90
    text = page_of(tmp_path, out=tmp_path / "page").text
    assert "2 of 3" in text and "20,000 of 40,000" in text


def test_success_has_a_column_where_a_task_knows_it(tmp_path: Path) -> None:
    fake_run(tmp_path / "a", success=[0, 0, 0.2, 0.5, 0.8], task="metaworld:hammer")
    assert "80%" in page_of(tmp_path / "a", out=tmp_path / "pa").text
    fake_run(tmp_path / "b")
    page = page_of(tmp_path / "b", out=tmp_path / "pb")
    assert ("success") not in [word.strip() for word in page.words]


def test_the_data_of_the_curves(tmp_path: Path) -> None:
    fake_run(tmp_path, returns=[1.0, 2.0, 3.0], lines=1001)
    fake_run(tmp_path, method="drqv2", returns=[1.0, 2.0, 3.0])
    data = page_of(tmp_path, out=tmp_path / "page").data
    drqv2, rev = data["groups"]
    assert data["labels"] == ["drqv2", "simsr-rev"] and drqv2["runs"][0]["c"] is None
    (run,) = rev["runs"]
    assert run["frames"] == [0, 20_000, 40_000] and run["updates"] == [0, 5_000, 10_000]
    assert run["return"] == [1.0, 2.0, 3.0] and run["hours"][2] == pytest.approx(0.11111)
    assert run["success"] is None and run["state"] == "finished"
    c = run["c"]
    assert len(c["values"]) == len(c["frames"]) == len(c["hours"]) <= 200
    assert c["frames"][-1] == 40_000  # the newest is never thinned out


def test_names_and_numbers_cannot_become_markup(tmp_path: Path) -> None:
    folder = fake_run(tmp_path, task=ODD, alarms=[{"frames": 1, "name": "x", "text": ODD}])
    about = {"command": f"revbis {ODD}", "versions": {ODD: ODD}, "revision": ODD}
    (folder / "run.json").write_text(json.dumps(about))
    page = page_of(tmp_path, out=tmp_path / "page")
    assert "<script>alert" not in page.source
    assert not set(page.scripts[0]) & set("<>&")  # the data, whatever its names are
    assert [tag for tag, _ in page.tags].count("script") == 3  # data, uPlot and ours
    assert page.data["tasks"] == [ODD]
    assert page.text.count("alert(1)") >= 6


def test_nothing_comes_from_elsewhere(tmp_path: Path) -> None:
    fake_run(tmp_path)
    page = page_of(tmp_path, out=tmp_path / "page")
    addresses = [v for _, found in page.tags for k, v in found.items() if k in ("src", "href")]
    assert addresses == ["data:,"]
    assert any("default-src 'none'" in str(found.get("content")) for _, found in page.tags)
    assert "@import" not in page.source and "url(" not in page.source
    assert "Copyright (c) 2022 Leon Sorokin" in page.source  # uPlot's licence travels with it


def test_bad_input_is_named_and_the_rest_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    good = fake_run(runs, seed=1)
    fake_run(runs, seed=2, done=0.5)  # in progress
    fake_run(runs, seed=3, returns=[1.0, float("nan"), 3.0])
    half = fake_run(runs, seed=4)
    with open(half / "eval.jsonl", "a") as file:
        file.write('{"frames": 50000, "mean_ret')
    with open(half / "train.jsonl", "a") as file:
        file.write('{"frames": 5')
    fake_run(runs, seed=5, returns=[], lines=0)  # no evaluation yet
    fake_run(tmp_path / "twin", seed=1, done=0.5)  # one identity, fewer frames
    fake_run(runs, task="dmc:walker_walk", method="drqv2")  # one seed
    (runs / "empty").mkdir()
    broken = runs / "cpu" / "broken"
    broken.mkdir()
    (broken / "config.json").write_text('{"task": 1')
    foreign = tmp_path / "foreign.csv"
    foreign.write_text("method,score\na,1\n")
    out = tmp_path / "page"
    given = [runs, tmp_path / "twin", runs / "empty", foreign, tmp_path / "nowhere"]
    main(["report", *map(str, given), "-o", str(out)])
    said = capsys.readouterr()
    page = Page(out / "index.html")
    for words in [
        "is not finished: 20,000 of 40,000 frames",
        "the return at frame 20,000 is not finite",
        "half written or no JSON object",
        "has no evaluation yet",
        "is the same run",
        "one seed only, so no spread is known",
        "has no run in it",
        "foreign.csv is no run folder",
        "nowhere does not exist",
        "broken",
    ]:
        assert words in said.err, words
        assert words in page.text, words
    assert f"open {out / 'index.html'}" in said.out
    rev, walker = page.data["groups"]
    assert [run["seed"] for run in rev["runs"]] == [1, 2, 3, 4, 5]
    assert rev["runs"][0]["frames"][-1] == 40_000 and good.exists()
    assert rev["runs"][1]["state"] == "unfinished"
    assert rev["runs"][2]["return"] == [1.0, 3.0]
    assert walker["runs"][0]["return"][-1] == 650.0


def test_numbers_that_are_none_and_lines_that_are_no_lines(tmp_path: Path) -> None:
    folder = fake_run(tmp_path)
    write_lines(
        folder / "train.jsonl",
        [{"c": "nan"}, {"frames": "x"}, {"frames": 5, "c": "inf", "seconds/update": "nan"}]
        + [{"frames": 6, "c": 0.5, "seconds": None, "seconds/update": 2.0, "updates": None}],
    )
    write_lines(folder / "eval.jsonl", [{"frames": 5, "mean_return": 1, "seconds": "nan"}])
    (run,) = page_of(tmp_path, out=tmp_path / "page").data["groups"][0]["runs"]
    assert run["c"]["values"] == [None, 0.5] and run["c"]["hours"] == [None, None]
    assert run["hours"] == [None] and run["return"] == [1.0] and run["episodes"] == [[]]


def test_failed_and_stalled_runs_are_told_apart(tmp_path: Path) -> None:
    for seed, kind in enumerate(["non_finite", "stalled"]):
        fake_run(tmp_path, seed=seed, alarms=[{"frames": 9, "name": kind, "text": f"so {kind}"}])
    page = page_of(tmp_path, out=tmp_path / "page")
    assert [run["state"] for run in page.data["groups"][0]["runs"]] == ["failed", "stalled"]
    assert "frame 9: so non_finite" in page.text


def test_common_settings_once_and_differences_in_a_table(tmp_path: Path) -> None:
    for seed in (1, 2):
        fake_run(tmp_path, seed=seed)
        fake_run(tmp_path / "b", seed=seed, batch_size=77)
    page = page_of(tmp_path, out=tmp_path / "page")
    settings = page.source[page.source.index('id="settings"') : page.source.index('id="commands"')]
    differing, common = settings.split("Common to all runs")
    assert ">77<" in differing and "batch size" in differing and "discount" not in differing
    assert "discount" in common and "batch size" not in common
    assert "simsr-rev (batch_size=77)" in page.data["labels"]
    commands = page.source[page.source.index('id="commands"') :]
    assert "revbis train --task dmc:cartpole_balance --method simsr-rev --seed 2" in commands
    assert "33e300566c29a7554ee2ad841b1f18794c61dc5d" in commands


def test_timing_is_per_frame(tmp_path: Path) -> None:
    fake_run(tmp_path, seed=1, rate=100)
    fake_run(tmp_path, seed=2, rate=200)
    page = page_of(tmp_path, out=tmp_path / "page")
    assert "100.0 frames/s" in page.text and "200.0 frames/s" in page.text
    bars = [found["style"] for _, found in page.tags if found.get("class") == "bar"]
    assert bars == ["width:100.0%", "width:50.0%"]  # twice as fast, half as long
    assert "72%" in page.text  # the update's share


def test_videos_and_pictures_are_part_of_the_page_up_to_its_size(tmp_path: Path) -> None:
    media = {}
    for seed in (1, 2):
        folder = fake_run(tmp_path, seed=seed)
        video, picture = tmp_path / f"{seed}.mp4", tmp_path / f"{seed}.png"
        video.write_bytes(b"v" * 8_000_000)
        picture.write_bytes(b"p" * 300)
        media[folder.resolve()] = Media(video, picture)
    page = page_of(tmp_path, out=tmp_path / "page", media=media)
    sources = [str(found.get("src")) for tag, found in page.tags if tag in ("video", "img")]
    assert [source.split(";")[0] for source in sources] == [
        "data:video/mp4",
        "data:image/png",
        "data:image/png",
    ]
    assert "seed 2: 2.mp4 is left out, the page would be too large" in page.text
    assert len(page.source) < 15_000_000


def test_training_is_read_again_only_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [fake_run(tmp_path, seed=seed) for seed in (1, 2)]
    trainings, read = Trainings(), []
    real = Path.read_text

    def noted(self: Path, *args: Any, **kwargs: Any) -> str:
        if self.name == "train.jsonl":
            read.append(self.parent.name)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", noted)
    for _ in range(2):
        page_of(tmp_path, out=tmp_path / "page", trainings=trainings)
    assert sorted(read) == ["seed-1", "seed-2"]
    with open(folders[0] / "train.jsonl", "a") as file:
        file.write(json.dumps({"frames": 41_000, "c": 0.125}) + "\n")
    data = page_of(tmp_path, out=tmp_path / "page", trainings=trainings).data
    assert read[2:] == ["seed-1"]
    assert data["groups"][0]["runs"][0]["c"]["values"][-1] == 0.125


def test_no_run_is_an_error_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = fails(capsys, "report", str(tmp_path), "-o", str(tmp_path / "page"))
    assert "there is no run to read" in error and len(error.splitlines()) == 1
    assert not (tmp_path / "page").exists()


def test_where_the_page_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [fake_run(Path("runs"), seed=seed) for seed in (1, 2)]
    main(["report"])
    assert "open report/index.html" in capsys.readouterr().out
    main(
        ["report", str(folders[0])]
    )  # no checkpoint, so no video: warned of, and the page is there
    said = capsys.readouterr()
    assert f"open {folders[0]}/page/index.html" in said.out
    assert "no episode.mp4: " in said.err and "has no checkpoint yet" in said.err
    assert "seed 1" in Page(folders[0] / "page" / "index.html").text


@pytest.mark.slow
def test_150_runs_of_100_evaluations(tmp_path: Path) -> None:
    large_study(tmp_path / "runs")
    path = write_report(read_study([tmp_path / "runs"]), tmp_path / "page")
    assert path.stat().st_size < 15_000_000
    assert Page(path).text.count("frames/s") == 150


def test_watch_waits_follows_and_ends_cleanly(tmp_path: Path) -> None:
    page = tmp_path / "page" / "index.html"
    runs = tmp_path / "runs"
    fast = "import revbis.commands.report as r; r._PAUSE_SECONDS = 0.05; r._SHARE = 0"
    start = f"{fast}; import sys; from revbis.cli import main; main(sys.argv[1:])"
    words = [sys.executable, "-c", start, "report", str(runs), "-o", str(page.parent), "--watch"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ
    ) as watcher:
        try:
            assert watcher.stdout is not None
            assert "waiting: there is no run to read" in watcher.stdout.readline()
            _appears(fake_run(tmp_path / "made", seed=1), runs / "1")
            _until(page.exists)
            assert 'data-refresh="10"' in page.read_text()
            _appears(fake_run(tmp_path / "made", seed=2), runs / "2")
            _until(lambda: len(Page(page).data["groups"][0]["runs"]) == 2)
            watcher.send_signal(signal.SIGINT)
            rest = watcher.stdout.read()
            assert watcher.wait(timeout=120) == 0
        finally:
            watcher.kill()
    assert f"open {page}" in rest and "Traceback" not in rest
    assert (
        "data-refresh" not in page.read_text().split("<body>")[0]
    )  # a page that is left lies still
    assert len(re.findall("one seed only", rest)) == 1  # each warning once


def _appears(run: Path, place: Path) -> None:
    """Puts a run where it is watched, all of it at once."""
    place.parent.mkdir(exist_ok=True)
    run.rename(place)


def _until(holds: Any, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
