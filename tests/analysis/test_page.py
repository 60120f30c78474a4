"""The report page as a file: its numbers, its messages, its commands. In a browser: see beside."""

import base64
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.fake_study import fake_run, large_study, rewrite, write_lines
from tests.analysis.runs import study_of, write_run
from tests.cli import fails

from revbis.analysis import tables
from revbis.analysis.page import Media, Trainings, write_page
from revbis.analysis.study import read_study
from revbis.cli import main

ODD = "<script>alert(1)</script>"
CHEETAH, HAMMER = "dmc:cheetah_run", "metaworld:hammer"


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
    return Page(write_page(read_study(folders), out, **options))


def summary_of(page: Page) -> list[list[str]]:
    """The cells of the summary, by row."""
    rows = page.source[page.source.index('id="summary"') :].split("<tbody>")[1].split("</tbody>")[0]
    return [
        [re.sub("<[^>]*>", "", cell) for cell in re.findall("<td>(.*?)</td>", row)]
        for row in rows.split("</tr>")[:-1]
    ]


def test_the_numbers_of_the_summary(tmp_path: Path) -> None:
    fake_run(tmp_path, seed=1, returns=[0.0, 50.0, 40.0])
    fake_run(tmp_path, seed=2, returns=[0.0, 30.0, 20.0])
    (row,) = summary_of(page_of(tmp_path, out=tmp_path / "page"))
    # 40 and 20: mean 30, deviation √200. Best 50 and 30. 40,000 frames at 100 a second: 0.11 h.
    final, best = "30.0 ± 14.1", "40.0 ± 14.1"
    assert row == ["dmc:cartpole_balance", "simsr-rev", final, best, "2", "40,000", "0.11"]


def test_seeds_that_have_not_got_there_are_left_out(tmp_path: Path) -> None:
    fake_run(tmp_path, seed=1, returns=[0.0, 50.0, 90.0])
    fake_run(tmp_path, seed=2, returns=[0.0, 30.0, 0.0], done=0.5)
    fake_run(tmp_path, seed=3, returns=[])
    for seed in (1, 2):  # none has got there: the last frame that both have
        fake_run(tmp_path, method="drqv2", seed=seed, returns=[0.0, 30.0, 0.0, 0.0, 0.0], done=0.5)
    drqv2, rev = summary_of(page_of(tmp_path, out=tmp_path / "page"))
    assert rev[2:6] == ["90.0", "90.0", "1 of 3", "40,000"]
    assert drqv2[2:6] == ["0.0 ± 0.0", "30.0 ± 0.0", "2", "20,000 of 40,000"]


def test_the_page_and_the_tables_agree(tmp_path: Path) -> None:
    """Raw frames share 0 alone, where the return is 3; at the budget it is 901."""
    for seed, late in enumerate([0, 1, 3], 1):
        final = 901.0 + late - 4 / 3  # 0, 1 and 3 have a mean of 4/3
        frames = {0: 3.0, 10_000 + late: 400.0, 20_000 + late: 950.0 + late, 30_000 + late: final}
        settings = {"frames": 30_000, "eval_every": 10_000, "action_repeat": 4}
        write_run(tmp_path, frames, task="dmc:cartpole_balance", seed=seed, **settings)
    study = read_study([tmp_path])
    page = page_of(tmp_path, out=tmp_path / "page")
    ((_, _, final, best, seeds, frames, _),) = summary_of(page)
    for kind, shown in (("final", final), ("best", best)):
        table = tables.score_table(study, kind=kind, budget=None, reported=False)
        assert table.rows[0][1][0].text == shown
    assert (final, best) == ("901 ± 2", "951 ± 2")
    assert (seeds, frames) == ("3", "30,000")
    (group,) = page.data["groups"]
    assert [run["frames"] for run in group["runs"]] == [[0, 10_000, 20_000, 30_000]] * 3
    assert group["best"]["return"] == [950.0, 951.0, 953.0]
    assert {row.frames for row in study.rows()} == {0, 10_000, 20_000, 30_000}


def test_meta_world_is_scored_by_success(tmp_path: Path) -> None:
    for method, share in (("drqv2", 0.8), ("simsr", 0.3)):
        success = [0, 0, 0.2, 0.5, share]
        fake_run(tmp_path, success=success, task="metaworld:hammer", method=method)
    page = page_of(tmp_path, out=tmp_path / "page")
    first, second = summary_of(page)
    assert first[2:5] == ["80.0%", "80.0%", "650"] and second[2:5] == ["30.0%", "50.0%", "650"]
    assert "of the published final return" not in page.text
    assert "<b>80.0%</b>" in page.source and page.data["measures"] == ["success"]
    fake_run(tmp_path / "b")
    assert "final return" not in page_of(tmp_path / "b", out=tmp_path / "pb").text


def test_the_data_of_the_curves(tmp_path: Path) -> None:
    fake_run(tmp_path, returns=[1.0, 2.0, 3.0], lines=1001)
    fake_run(tmp_path, method="drqv2", returns=[1.0, 2.0, 3.0])
    data = page_of(tmp_path, out=tmp_path / "page").data
    drqv2, rev = data["groups"]
    assert data["labels"] == ["drqv2", "simsr-rev"]
    assert sorted(drqv2["runs"][0]["training"]["values"]) == ["critic_loss", "critic_q1"]
    (run,) = rev["runs"]
    assert run["frames"] == [0, 20_000, 40_000] and run["updates"] == [0, 5_000, 10_000]
    assert run["return"] == [1.0, 2.0, 3.0] and run["hours"][2] == pytest.approx(0.11111)
    assert run["success"] is None and run["state"] == "finished"
    training = run["training"]
    names = ["c", "critic_loss", "critic_q1", "objective/effective_rank"]
    assert sorted(training["values"]) == names
    lengths = {len(values) for values in training["values"].values()}
    assert lengths == {len(training["frames"])} == {len(training["hours"])} and max(lengths) <= 200
    assert training["frames"][-1] == 40_000  # the newest is never thinned out
    assert training["values"]["critic_q1"][-1] == 40.0


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


def test_mixed_processors_are_named_at_the_top_and_among_the_versions(tmp_path: Path) -> None:
    names = ["AMD EPYC, cpu family 25, model 17", "Intel Xeon, cpu family 6, model 143"]
    for seed, name in enumerate([names[0], *names], 1):
        folder = fake_run(tmp_path, seed=seed)
        about = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps(about | {"processor": name}))
    page = page_of(tmp_path, out=tmp_path / "page")
    values = [f"{names[0]} (2 of 3)", f"{names[1]} (1 of 3)"]
    line = f"made on 2 processors: {' and '.join(values)}; seeds do not reproduce across them"
    assert page.text.index(line) < page.text.index("Scores are returns")
    assert ", ".join(values) in page.text[page.text.rindex("Versions") :]


def test_mixed_simulators_are_named_at_the_top_and_among_the_versions(tmp_path: Path) -> None:
    for seed, mujoco in enumerate(("3.3.0", "3.17.0"), 1):
        folder = fake_run(tmp_path, seed=seed)
        about = json.loads((folder / "run.json").read_text())
        about["versions"]["mujoco"] = mujoco
        (folder / "run.json").write_text(json.dumps(about))
    page = page_of(tmp_path, out=tmp_path / "page")
    line = "made with 2 versions of mujoco: 3.3.0 (1 of 2) and 3.17.0 (1 of 2); their physics and"
    assert page.text.index(line) < page.text.index("Scores are returns")
    assert "3.3.0 (1 of 2), 3.17.0 (1 of 2)" in page.text[page.text.rindex("Versions") :]


def test_nothing_comes_from_elsewhere(tmp_path: Path) -> None:
    fake_run(tmp_path)
    page = page_of(tmp_path, out=tmp_path / "page")
    addresses = [
        v for _, attributes in page.tags for k, v in attributes.items() if k in ("src", "href")
    ]
    assert addresses == ["data:,"]
    assert any(
        "default-src 'none'" in str(attributes.get("content")) for _, attributes in page.tags
    )
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
    printed = capsys.readouterr()
    page = Page(out / "index.html")
    for words in [
        "is not finished: 20,000 of 40,000 frames",
        "the return at frame 20,000 is not finite",
        "skipped: incomplete or not a JSON object",
        "has no evaluation yet",
        "is the same run",
        "one seed only, so no spread is known",
        "contains no run",
        "foreign.csv is not a run folder",
        "nowhere does not exist",
        "broken",
    ]:
        assert words in printed.err, words
        assert words in page.text, words
    assert f"open {out / 'index.html'}" in printed.out
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
    training = run["training"]
    assert training["values"] == {"c": [None, 0.5]} and training["hours"] == [None, None]
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
    assert "<dd>33e3005</dd>" in commands and not re.search(r"\b[0-9a-f]{40}\b", page.source)


def test_mixed_revisions_are_short(tmp_path: Path) -> None:
    for seed, letter in enumerate("ab", 1):
        folder = fake_run(tmp_path, seed=seed)
        about = json.loads((folder / "run.json").read_text()) | {"revision": letter * 40}
        (folder / "run.json").write_text(json.dumps(about))
    page = page_of(tmp_path, out=tmp_path / "page")
    assert "versions are mixed: revision aaaaaaa and bbbbbbb" in page.text
    assert "aaaaaaaa" not in page.source


def test_render_quality_is_of_what_is_rendered(tmp_path: Path) -> None:
    def about(folder: str) -> tuple[bool, bool]:
        page = page_of(tmp_path / folder, out=tmp_path / "page")
        return "render quality" in page.text, "<dt>quality</dt>" in page.source

    fake_run(tmp_path / "state", observation="state")
    fake_run(tmp_path / "pixels")
    assert about("state") == (False, False) and about("pixels") == (True, True)
    assert about(".") == (True, False)  # it differs: – for the one without pixels


def test_the_verdict_comes_first_then_curves_then_tables(tmp_path: Path) -> None:
    runs = {(task, "drqv2"): [1.0, 2.0, 3.0, 4.0] for task in (CHEETAH, "dmc:walker_run")}
    runs |= {(task, "simsr"): [2.0, 3.0, 4.0, 5.0] for task, _ in list(runs)}
    study_of(tmp_path, runs)
    page = page_of(tmp_path, out=tmp_path / "page", baseline="drqv2")
    sections = re.findall(r'<section id="(\w+)"', page.source)
    assert sections[0] == "differences"
    assert sections.index("curves") < sections.index("summary") < sections.index("settings")
    part = page.source[page.source.index('id="differences"') : page.source.index('id="curves"')]
    assert part.index('class="verdict"') < part.index("<table") < part.index("Task by task")
    assert re.findall(r"<td>(simsr, [^<]*)", part.partition("Task by task")[0]) == [
        "simsr, all tasks (% of the baseline)"
    ]
    assert len(re.findall(r"<td>(simsr, [^<]*)", part)) == 3
    assert "--baseline METHOD" not in page.text
    assert "--baseline METHOD" in page_of(tmp_path, out=tmp_path / "page").text


def test_maximal_returns_where_they_are_known(tmp_path: Path) -> None:
    for task in ("dmc:walker_walk", "gym:Pendulum-v1", "metaworld:hammer"):
        fake_run(tmp_path, task)
    data = page_of(tmp_path, out=tmp_path / "page").data
    assert dict(zip(data["tasks"], data["maximal"], strict=True)) == {
        "dmc:walker_walk": 1000.0,
        "gym:Pendulum-v1": None,
        "metaworld:hammer": 1.0,
    }


def test_timing_is_per_frame(tmp_path: Path) -> None:
    fake_run(tmp_path, seed=1, rate=100)
    fake_run(tmp_path, seed=2, rate=200)
    page = page_of(tmp_path, out=tmp_path / "page")
    assert "100.0 frames/s" in page.text and "200.0 frames/s" in page.text
    bars = [attributes["style"] for _, attributes in page.tags if attributes.get("class") == "bar"]
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
    sources = [
        str(attributes.get("src")) for tag, attributes in page.tags if tag in ("video", "img")
    ]
    assert [source.split(";")[0] for source in sources] == [
        "data:video/mp4",
        "data:image/png",
        "data:image/png",
    ]
    assert "seed 2: 2.mp4 is left out, the page would be too large" in page.text
    assert len(page.source) < 15_000_000


def test_neighbours_are_announced_where_there_are_some(tmp_path: Path) -> None:
    folder, file = fake_run(tmp_path, seed=1), tmp_path / "media"
    file.write_bytes(b"v")
    for media, named in ((Media(file, file), True), (Media(file), False)):
        page = page_of(tmp_path, out=tmp_path / "page", media={folder.resolve(): media})
        assert ("Episodes and neighbours" in page.text) == named
        assert ("Nearest states" in page.text) == named
        assert "The mean action of the newest checkpoint." in page.text


def test_an_episode_before_training_is_shown_beside_the_last(tmp_path: Path) -> None:
    folder = fake_run(tmp_path, seed=1)
    before, after = tmp_path / "before", tmp_path / "after"
    before.write_bytes(b"first")
    after.write_bytes(b"last")
    for media, captions in (
        (Media(after, None, before), ["Before training", "The newest checkpoint"]),
        (Media(after), []),
    ):
        page = page_of(tmp_path, out=tmp_path / "page", media={folder.resolve(): media})
        videos = [attributes for tag, attributes in page.tags if tag == "video"]
        order = [before, after] if captions else [after]
        coded = [base64.b64encode(path.read_bytes()).decode() for path in order]
        assert [str(video["src"]).partition(",")[2] for video in videos] == coded
        assert all(("autoplay" in video) == bool(captions) for video in videos)
        assert all(caption in page.text for caption in captions)


def test_a_run_on_state_vectors_has_no_picture_of_neighbours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = fake_run(tmp_path, seed=1, observation="state")
    main(["report", str(folder)])
    printed = capsys.readouterr().err
    assert "no episode.mp4: " in printed and "no neighbours.png" not in printed


def test_lists_of_settings_are_as_on_the_command_line(tmp_path: Path) -> None:
    fake_run(tmp_path, seed=1)
    page = page_of(tmp_path, out=tmp_path / "page")
    assert re.search(r"<dt>strides</dt>\s*<dd>2 1 1 1</dd>", page.source)


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
    assert data["groups"][0]["runs"][0]["training"]["values"]["c"][-1] == 0.125


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
    printed = capsys.readouterr()
    assert f"open {folders[0]}/page/index.html" in printed.out
    assert "no episode.mp4: " in printed.err and "its checkpoints are not here" in printed.err
    assert "seed 1" in Page(folders[0] / "page" / "index.html").text


@pytest.mark.slow
def test_150_runs_of_100_evaluations(tmp_path: Path) -> None:
    large_study(tmp_path / "runs", padding=12)
    path = write_page(read_study([tmp_path / "runs"]), tmp_path / "page")
    assert path.stat().st_size < 4_000_000
    page = Page(path)
    assert page.text.count("frames/s") == 150
    trainings = [run["training"] for group in page.data["groups"] for run in group["runs"]]
    numbers = sum(len(one["frames"]) * (3 + len(one["values"])) for one in trainings)
    assert numbers <= 300_000 and min(len(one["frames"]) for one in trainings) >= 30
    ends = {one["frames"][-1] for one in trainings}
    assert ends == {1_000_000, 600_000}  # the newest line of each, also where it is thinned out


def test_statistics_are_those_of_the_tables(tmp_path: Path) -> None:
    study = study_of(
        tmp_path,
        {
            (CHEETAH, "drqv2"): [200.0, 400.0] * 2,
            (HAMMER, "drqv2"): [0.4, 0.8] * 2,
            (CHEETAH, "mico"): [1000.0] * 3,
            (HAMMER, "mico"): [1.0] * 3,
            ("dmc:walker_run", "mico"): [500.0],
        },
    )
    page = page_of(tmp_path, out=tmp_path / "page")
    for table in (tables.aggregate_table(study), tables.pair_table(study)):
        assert table.caption in page.text
        for name, cells in table.rows:
            remarks = [f"<small> {cell.remark}</small>" if cell.remark else "" for cell in cells]
            texts = [cell.text + remark for cell, remark in zip(cells, remarks, strict=True)]
            assert "".join(f"<td>{text}</td>" for text in (name, *texts)) in page.source
    assert page.source.count("<small> no interval: 3 seeds</small>") == 5 + 2
    assert "walker_run is left out: not all methods have a score." in page.text
    drqv2, mico = page.data["profiles"]
    shares = dict(zip(drqv2["x"], drqv2["y"], strict=True))
    # Of 0.2, 0.4, 0.4 and 0.8.
    assert [shares[tau] for tau in (0.1, 0.3, 0.5, 0.9)] == [1.0, 0.75, 0.25, 0.0]
    assert mico["y"] == [1.0] * 100 + [0.0]
    for low, share, high in zip(drqv2["low"], drqv2["y"], drqv2["high"], strict=True):
        assert low <= share <= high
    assert "low" not in mico and "high" not in mico  # of three seeds
    first, second, _, _, last = page.data["groups"]
    assert first["best_ends"]["return"] == pytest.approx([116.25, 483.75], abs=0.1)
    assert last["best_ends"] == {"return": None, "success": None}
    assert {group["label"] for group in (first, second)} == {0, 1}


def test_statistics_that_cannot_be_made(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [0.0, 1.0])
    alone = page_of(tmp_path / "a", out=tmp_path / "page")
    assert 'id="statistics"' not in alone.source and alone.data["profiles"] == []
    study_of(tmp_path / "b", {("gym:A-v1", "drqv2"): [1.0, 2.0]})
    page = page_of(tmp_path / "b", out=tmp_path / "page")
    assert "Scores cannot be pooled over tasks: " in page.text
    assert "no bounds are known for gym:A-v1" in page.text and page.data["profiles"] == []


def test_what_only_evaluations_report(tmp_path: Path) -> None:
    """As `status`, or in older records as c; what training lines have is not repeated."""
    new, old, both = (fake_run(tmp_path, seed=seed) for seed in (1, 2, 3))
    for folder in (new, old):
        rewrite(folder / "train.jsonl", lambda line: line | {"c": None})
    rewrite(new / "eval.jsonl", lambda line: line | {"c": None, "status": {"c": 0.5, "plan": 3}})
    rewrite(both / "eval.jsonl", lambda line: line | {"status": {"c": 0.5}})
    first, second, third = page_of(tmp_path, out=tmp_path / "page").data["groups"][0]["runs"]
    assert first["status"] == {"c": [0.5] * 5, "plan": [3.0] * 5}
    assert second["status"]["c"][0] == 0.5 and list(second["status"]) == ["c"]
    assert third["status"] == {} and "c" in third["training"]["values"]


def test_every_number_of_a_training_line_is_there(tmp_path: Path) -> None:
    folder = fake_run(tmp_path)
    rewrite(folder / "train.jsonl", lambda line: line | {"kl": 2.0, "world/kl": None, "bad": []})
    page = page_of(tmp_path, out=tmp_path / "page")
    values = page.data["groups"][0]["runs"][0]["training"]["values"]
    assert values["kl"] == [2.0] * 20 and "world/kl" not in values and "bad" not in values
    counters = {"frames", "agent_steps", "updates", "episodes", "seconds"}
    assert not counters & values.keys() and not any(name.startswith("seconds/") for name in values)
    assert "values that are not numbers are skipped: bad" in page.text
    assert "effective rank near 1" in page.text
    fake_run(tmp_path / "b", method="drqv2")
    assert "effective rank" not in page_of(tmp_path / "b", out=tmp_path / "page").text


def test_runs_whose_agents_have_different_settings(tmp_path: Path) -> None:
    for method in ("drqv2", "tdmpc"):
        fake_run(tmp_path, method=method)
    source = page_of(tmp_path, out=tmp_path / "page").source
    differences = source[source.index("Differences") : source.index("Common to all runs")]
    assert "elites" in differences and "<td>–</td>" in differences


def test_the_command_needs_no_torch(tmp_path: Path) -> None:
    for seed in (1, 2):
        fake_run(tmp_path / "runs", seed=seed)
    code = (
        "import sys; from revbis.cli import main; main(sys.argv[1:])\n"
        "print([name for name in ('torch', 'matplotlib', 'numba', 'scipy') if name in sys.modules])"
    )
    words = [sys.executable, "-c", code, "report", str(tmp_path / "runs"), "-o", str(tmp_path)]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == [f"open {tmp_path / 'index.html'}", "[]"]
