"""Run folders read into a study: what is odd is named, and everything else is still there."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.fake_study import fake_run
from tests.analysis.runs import ABOUT, write_lines, write_run
from tests.analysis.test_page import Page

from revbis.analysis import figures, tables
from revbis.analysis.page import write_page
from revbis.analysis.study import Study, TidyRow, read_study

OBJECTS = ("config.json", "run.json", "result.json", "failures.json")
LINES = ("eval.jsonl", "train.jsonl", "alarms.jsonl")
DEEP = "[" * 100_000
CONTENTS = {
    "null": b"null",
    "NaN": b"NaN",
    "half an object": b'{"frames": 10, "mean_re',
    "not text": bytes(range(256)),
    "a deep array": DEEP.encode(),
    "many digits": b'{"frames": 1' + b"0" * 5000 + b"}",
}
NO_COUNT = [None, True, -1, 1.5, math.nan, math.inf, 1e23, 10**400, [], {}]
NO_NUMBER = [True, "x", [], {}, [[[]]]]
NO_TEXT = [5, True, [], {}, math.nan]


def has_problem(study: Study, *words: str) -> bool:
    """Whether one problem has all these words."""
    return any(all(word in str(problem) for word in words) for problem in study.problems)


def test_tidy_rows(tmp_path: Path) -> None:
    write_run(tmp_path, [1.0, 2.5], seed=3)
    write_run(tmp_path, [0.2, 0.7], task="metaworld:hammer", method="mico", seed=3)
    study = read_study([tmp_path])
    assert tuple(map(str, study.problems)) == (
        "dmc:cheetah_run, drqv2: one seed only, so no spread is known",
        "metaworld:hammer, mico: one seed only, so no spread is known",
    )
    rows = study.rows()
    nothing_else = (None, None, None, {})
    assert rows[1] == TidyRow("drqv2", "dmc:cheetah_run", 3, 10, 5, 5, 1.5, 2.5, *nothing_else)
    assert [row.success for row in rows] == [None, None, pytest.approx(0.2), pytest.approx(0.7)]
    study.write_csv(tmp_path / "scores.csv")
    with open(tmp_path / "scores.csv", newline="") as file:
        written = list(csv.DictReader(file))
    assert [row["mean_return"] for row in written] == ["1.0", "2.5", "205.0", "705.0"]
    assert written[0]["success"] == "" and float(written[3]["success"]) == pytest.approx(0.7)


def test_whole_study_has_no_problem(tmp_path: Path) -> None:
    for method in ("drqv2", "mico"):
        for task in ("dmc:cheetah_run", "dmc:walker_run"):
            for seed in (1, 2):
                write_run(tmp_path, [0.0, 1.0], task=task, method=method, seed=seed)
    study = read_study([tmp_path])
    assert study.problems == ()
    assert study.labels == ["drqv2", "mico"]
    assert study.tasks == ["dmc:cheetah_run", "dmc:walker_run"]
    assert [group.seeds for group in study.groups] == [(1, 2)] * 4
    assert len(study.runs) == 8 and all(run.finished for run in study.runs)
    assert study.group("mico", "dmc:walker_run") is study.groups[3]
    assert study.group("mico", "dmc:hopper_hop") is None


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: path.mkdir(), "contains no run"),
        (lambda path: None, "does not exist"),
        (lambda path: path.write_text("a,b\n1,2\n"), "is not a run folder: pass folders"),
    ],
)
def test_no_run_at_all(tmp_path: Path, make: object, why: str) -> None:
    make(tmp_path / "x")  # type: ignore[operator]
    with pytest.raises(ValueError, match=f"there is no run to read; .*x {why}"):
        read_study([tmp_path / "x"])


def test_a_folder_given_twice_is_read_once(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [0.0, 1.0])
    study = read_study([tmp_path, folder, tmp_path])
    assert len(study.runs) == 1 and not has_problem(study, "same run")


@pytest.mark.parametrize(
    "line",
    [
        {"frames": 20},
        {"mean_return": 1.0},
    ],
)
def test_lines_that_are_no_evaluation(tmp_path: Path, line: dict[str, object]) -> None:
    folder = write_run(tmp_path, [0.0, 1.0])
    with open(folder / "eval.jsonl", "a") as file:
        file.write(json.dumps(line) + "\n")
    study = read_study([tmp_path])
    assert [row.mean_return for row in study.rows()] == [0.0, 1.0]
    assert has_problem(study, "eval.jsonl: line 3 is skipped: not a valid evaluation")


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", math.nan])
def test_returns_that_are_not_finite(tmp_path: Path, value: object) -> None:
    write_run(tmp_path, {0: 1.0, 10: value, 20: 3.0})
    study = read_study([tmp_path])
    assert [(row.frames, row.mean_return) for row in study.rows()] == [(0, 1.0), (20, 3.0)]
    assert has_problem(study, "the return at frame 10 is not finite, left out")


def test_what_agents_report_is_in_the_tidy_table(tmp_path: Path) -> None:
    """In `status`; in older records c is beside everything else."""
    folder = write_run(tmp_path, [1.0])
    lines: list[dict[str, object]] = [
        {"frames": 0, "mean_return": 1.0, "c": "nan", "returns": [1.0], "note": "x"},
        {"frames": 9, "mean_return": 2, "c": 0, "status": {"c": 0.5, "temperature": None}},
        {"frames": 20, "mean_return": 3, "status": {"temperature": 2, "horizon": 5}},
    ]
    write_lines(folder / "eval.jsonl", lines)
    study = read_study([tmp_path])
    first, second, third = (row.status for row in study.rows())
    assert list(first) == ["c"] and math.isnan(first["c"])
    assert second == {"c": 0.5} and third == {"temperature": 2.0, "horizon": 5.0}
    study.write_csv(tmp_path / "scores.csv")
    with open(tmp_path / "scores.csv", newline="") as file:
        written = list(csv.DictReader(file))
    assert list(written[0])[-4:] == ["train_success", "c", "temperature", "horizon"]
    assert [row["c"] for row in written] == ["nan", "0.5", ""]
    assert [row["temperature"] for row in written] == ["", "", "2.0"]


def test_a_run_in_progress(tmp_path: Path) -> None:
    write_run(tmp_path, [0.0, 1.0], frames=40, seed=1)
    write_run(tmp_path, [], frames=40, seed=2)
    write_run(tmp_path, [0.0, 1.0, 2.0, 3.0, 4.0], seed=3)
    study = read_study([tmp_path])
    assert has_problem(study, "seed-1 is not finished: 10 of 40 frames")
    assert has_problem(study, "seed-2 has no evaluation yet")
    assert not has_problem(study, "seed-3")
    assert [run.finished for run in study.runs] == [False, False, True]
    assert [run.frames for run in study.runs] == [10, 0, 40]
    assert len(study.rows()) == 7


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [0.0, 1.0])
    (folder / "alarms.jsonl").mkdir()
    (folder / "run.json").write_text("{")
    study = read_study([tmp_path])
    assert has_problem(study, "alarms.jsonl cannot be read: Is a directory")
    assert has_problem(study, "run.json cannot be read")
    assert len(study.rows()) == 2


def test_two_runs_with_one_identity(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [0.0, 1.0], frames=20)
    longer = write_run(tmp_path / "b", [0.0, 5.0, 6.0], frames=20)
    write_run(tmp_path / "c", [0.0, 7.0], frames=20, threads=1, eval_episodes=3)
    study = read_study([tmp_path])
    assert [run.folder for run in study.runs] == [longer.resolve()]
    assert [row.mean_return for row in study.rows()] == [0.0, 5.0, 6.0]
    assert has_problem(study, f"{tmp_path / 'a'}", "is left out", f"{longer} is the same run")
    assert has_problem(study, f"{tmp_path / 'c'}", "is left out")


def test_mixed_settings_are_kept_apart(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [0.0, 1.0], seed=1)
    write_run(tmp_path / "a", [0.0, 2.0], seed=2)
    write_run(tmp_path / "b", [0.0, 9.0], seed=1, hidden=64)
    study = read_study([tmp_path])
    assert study.labels == ["drqv2 (hidden=256)", "drqv2 (hidden=64)"]
    assert [[run.config.seed for run in group.runs] for group in study.groups] == [[1, 2], [1]]
    assert has_problem(study, "drqv2 (hidden=64) is kept separate")
    assert has_problem(study, "drqv2 (hidden=64): no seed 2")


def test_settings_that_follow_the_task_are_no_difference(tmp_path: Path) -> None:
    for task in ("dmc:cheetah_run", "metaworld:hammer"):
        write_run(tmp_path, [0.0, 1.0], task=task, preset="paper")
    study = read_study([tmp_path])
    first, second = (dict(run.settings)["noise_steps"] for run in study.runs)
    assert first != second and study.labels == ["drqv2"]


def test_mixed_state_noise(tmp_path: Path) -> None:
    write_run(tmp_path, [0.0, 1.0], method="drqv2", observation="state", state_noise=8)
    write_run(tmp_path, [0.0, 1.0], method="mico", observation="state", state_noise=24)
    study = read_study([tmp_path])
    wanted = "dmc:cheetah_run: state_noise is 24 and 8: returns are not comparable"
    assert has_problem(study, wanted) and not has_problem(study, "state_noise_kind")


def test_mixed_quality_and_preset(tmp_path: Path) -> None:
    write_run(tmp_path, [0.0, 1.0], method="drqv2")
    write_run(tmp_path, [0.0, 1.0], method="mico", quality="full")
    write_run(tmp_path, [0.0, 1.0], method="simsr", preset="paper", pixels=48)
    write_run(tmp_path, [0.0, 1.0], task="dmc:walker_run", method="simsr", preset="paper")
    study = read_study([tmp_path])
    assert has_problem(
        study, "dmc:cheetah_run: quality is fast and full: returns are not comparable"
    )
    assert has_problem(study, "dmc:cheetah_run: presets cpu and paper are not comparable")
    assert not has_problem(study, "pixels") and not has_problem(study, "dmc:walker_run:")
    assert len(study.rows()) == 8


def test_mixed_versions(tmp_path: Path) -> None:
    newer = {"versions": {"revbis": "0.1.0", "torch": "2.14.0"}, "revision": "def"}
    write_run(tmp_path, [0.0, 1.0], seed=1)
    write_run(tmp_path, [0.0, 1.0], seed=2, about=newer)
    write_run(tmp_path, [0.0, 1.0], seed=3, about=ABOUT | {"versions": None})
    study = read_study([tmp_path])
    assert has_problem(study, "the runs were made with 2 versions of torch: 2.13.0 (1 of 2) and 2")
    assert has_problem(study, "versions are mixed: revision abc and def")
    assert not has_problem(study, "versions are mixed: revbis")
    assert len(study.rows()) == 6


ONE = {"processor": "AMD EPYC", "threads": {"torch": 1, "cores": 2}, "blas": {"torch": "mkl"}}
OTHER = {"processor": "Intel Xeon", "threads": {"torch": 2, "cores": 8}, "blas": {"torch": "mkl"}}


@pytest.mark.parametrize(
    ("machines", "line"),
    [
        ((ONE, ONE), ""),
        (({}, {}), ""),  # as runs of earlier versions are
        (
            (ONE, ONE, OTHER),
            "the runs were made on 2 processors: AMD EPYC (2 of 3) and Intel Xeon (1 of 3); with 2 "
            "numbers of threads: 1 (2 of 3) and 2 (1 of 3); seeds do not reproduce across them",
        ),
        (
            (ONE, {}),
            "the runs were made on processors not all recorded: AMD EPYC (1 of 2) and not recorded "
            "(1 of 2); seeds do not reproduce across them",
        ),
        (
            (ONE, ONE | {"blas": {"torch": "accelerate"}}),
            "the runs were made with 2 BLAS libraries of torch: mkl (1 of 2) and accelerate "
            "(1 of 2); seeds do not reproduce across them",
        ),
    ],
)
def test_mixed_machines_are_one_problem_and_a_note(
    tmp_path: Path, machines: Any, line: str
) -> None:
    for seed, machine in enumerate(machines, 1):
        write_run(tmp_path, [0.0, 1.0], seed=seed, about=ABOUT | machine)
    study = read_study([tmp_path])
    assert [str(each) for each in study.problems] == ([line] if line else [])
    notes = [line[0].upper() + line[1:]] if line else []
    assert study.machine_notes == notes
    table = tables.score_table(study, kind="final", budget=None, reported=False)
    about_machines = [note for note in table.notes if "made" in note]
    assert about_machines == [f"{note}." for note in notes]


OLD = {"mujoco": "3.3.0", "dm_control": "1.0.28", "gymnasium": "1.4.0"}
NEW = OLD | {"mujoco": "3.17.0", "dm_control": "1.0.50"}
MUJOCO = "with 2 versions of mujoco: 3.3.0 (2 of 3) and 3.17.0 (1 of 3)"
DM_CONTROL = "with 2 versions of dm_control: 1.0.28 (2 of 3) and 1.0.50 (1 of 3)"
MAY_DIFFER = "their physics and images may differ"
SEEDS = "seeds do not reproduce across them"


@pytest.mark.parametrize(
    ("task", "versions", "lines"),
    [
        ("dmc:cheetah_run", (OLD, OLD, OLD), []),
        (
            "dmc:cheetah_run",
            (OLD, OLD, NEW),
            [f"the runs were made {MUJOCO}; {DM_CONTROL}; {MAY_DIFFER}"],
        ),
        (
            "dmc:cheetah_run",
            (OLD, {}, OLD | {"mujoco": "3.17.0"}),
            [
                "the runs were made with 2 versions of mujoco: 3.3.0 (1 of 2) and 3.17.0 (1 of 2); "
                + MAY_DIFFER
            ],
        ),
        (
            "dmc:cheetah_run",  # to which Gymnasium is an interface
            (OLD, OLD, OLD | {"gymnasium": "1.5.0"}),
            [
                "the runs were made with 2 versions of gymnasium: 1.4.0 (2 of 3) and 1.5.0 "
                f"(1 of 3); {SEEDS}"
            ],
        ),
        (
            "gym:Pendulum-v1",
            (OLD, OLD, OLD | {"gymnasium": "1.5.0"}),
            [
                "the runs were made with 2 versions of gymnasium: 1.4.0 (2 of 3) and 1.5.0 "
                f"(1 of 3); {MAY_DIFFER}"
            ],
        ),
        (
            "dmc:cheetah_run",
            (OLD, OLD, OLD | {"mujoco": "3.17.0", "torch": "2.14.0"}),
            [
                f"the runs were made {MUJOCO}; {MAY_DIFFER}",
                "the runs were made with 2 versions of torch: 2.13.0 (2 of 3) and 2.14.0 (1 of 3); "
                + SEEDS,
            ],
        ),
    ],
)
def test_mixed_simulators_are_a_problem_and_a_note(
    tmp_path: Path, task: str, versions: Any, lines: list[str]
) -> None:
    for seed, own in enumerate(versions, 1):
        about = ABOUT | {"versions": ABOUT["versions"] | own}
        write_run(tmp_path, [0.0, 1.0], seed=seed, task=task, about=about)
    study = read_study([tmp_path])
    assert [str(each) for each in study.problems] == lines
    table = tables.score_table(study, kind="final", budget=None, reported=False)
    notes = [note for note in table.notes if "made" in note]
    assert notes == [f"{line[0].upper()}{line[1:]}." for line in lines]


def test_missing_seeds(tmp_path: Path) -> None:
    for method, task, seeds in (
        ("drqv2", "dmc:cheetah_run", (1, 2)),
        ("drqv2", "dmc:walker_run", (1, 3)),
        ("mico", "dmc:cheetah_run", (2,)),
    ):
        for seed in seeds:
            write_run(tmp_path, [0.0, 1.0], method=method, task=task, seed=seed)
    study = read_study([tmp_path])
    assert tuple(map(str, study.problems)) == (
        "dmc:cheetah_run, drqv2: no seed 3",
        "dmc:walker_run, drqv2: no seed 2",
        "dmc:cheetah_run, mico: no seed 1, 3",
        "dmc:cheetah_run, mico: one seed only, so no spread is known",
    )


ODD: dict[str, dict[str, list[Any]]] = {
    "config.json": {  # of each type one: the others are tested with the types
        "task": [*NO_TEXT, None],
        "method": ["none"],
        "frames": [*NO_COUNT, 10**23, 0],
        "strides": [None, [2, 2, 1], [2, 2, 1, True], "2211"],
        "discount": [None, "x", math.nan, 2, 10**400],
        "distractor_strength": [*NO_NUMBER, 0, 1.5],
        "quality": ["worst"],
        "colour": ["red"],
    },
    "run.json": {
        "versions": [5, "x", [], {"torch": 2}, {"torch": {"a": []}}, True],
        "revision": NO_TEXT,
        "command": NO_TEXT,
        "machine": NO_TEXT,
        "processor": NO_TEXT,
        "threads": [5, "x", [], {"torch": -1}, {"torch": "x"}, {"torch": None}],
        "blas": [5, "x", [], {"torch": 2}, True],
    },
    "result.json": {"frames": NO_COUNT, "mean_return": ["x", [], True, None]},
    "failures.json": {"failures": [5, "x", {}, [5], [[]], [None], [{"text": "x"}], None, True]},
    "eval.jsonl": {
        "frames": NO_COUNT,
        "mean_return": [None, *NO_NUMBER, "nan", math.nan, math.inf, 1e200, 10**400],
        "train_mean_return": [None, *NO_NUMBER, "nan", math.nan, math.inf, 1e200, 10**400],
        "train_returns": [5, "x", {}, ["x"], [None]],
        "train_success_any": [5, "x", {"a": 1}, ["x"], [0.5], True],
        "success_any": [5, "x", {"a": 1}, ["x"], [[]], [0.5], [5], True],
        "seconds": NO_NUMBER,
        "updates": [*NO_NUMBER, -1, 1.5, 10**400],
        "agent_steps": NO_NUMBER,
        "returns": [5, "x", {}, ["x"], [[]], [True], [None]],
        "c": NO_NUMBER,
        "status": [5, "x", [], True, None, {"c": "x"}, {"c": []}, {"c": {}}],
    },
    "train.jsonl": {
        "frames": NO_COUNT,
        "critic_loss": NO_NUMBER,
        "c": NO_NUMBER,
        "seconds/update": NO_NUMBER,
    },
    "alarms.jsonl": {
        "name": [*NO_TEXT, None],
        "text": [*NO_TEXT, None],
        "frames": [one for one in NO_COUNT if one is not None],
    },
}


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """The third of three runs."""
    for seed in (1, 2):
        fake_run(tmp_path / "runs", seed=seed)
    alarm = {"frames": 10, "name": "stalled", "text": "no better evaluation"}
    folder = fake_run(tmp_path / "runs", seed=3, alarms=[alarm])
    (folder / "failures.json").write_text(json.dumps({"failures": []}))
    return folder


def shown(bad: Path) -> str:
    """The page's words, once it is sure that the good runs are on it."""
    study = read_study([bad.parents[3]])
    page = Page(write_page(study, bad.parents[4] / "page"))
    seeds = {run["seed"]: run for group in page.data["groups"] for run in group["runs"]}
    for seed in (1, 2):
        assert seeds[seed]["return"] == [100.0, 300.0, 500.0, 600.0, 650.0]
        assert seeds[seed]["state"] == "finished"
    tables.score_table(study, kind="final", budget=None, reported=True)
    return page.text


def spoiled(path: Path, name: str, value: Any) -> bytes:
    """A file with another value under a name, in its last line."""
    text = path.read_text()
    *before, last = text.splitlines() if path.suffix == ".jsonl" else [text]
    return "\n".join([*before, json.dumps(json.loads(last) | {name: value})]).encode()


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("name", [*OBJECTS, *LINES])
def test_a_file_with_anything_in_it(name: str, content: str, bad: Path) -> None:
    (bad / name).write_bytes(CONTENTS[content] + b"\n")
    words = shown(bad)
    assert "seed-3" in words and name in words


@pytest.mark.parametrize("name", [*OBJECTS, *LINES])
def test_a_file_that_is_empty_missing_or_a_folder(name: str, bad: Path) -> None:
    (bad / name).write_bytes(b"")
    words = shown(bad)
    if name in OBJECTS:
        assert ("seed-3" in words and f"{name} cannot be read" in words) or name == "config.json"
    (bad / name).unlink()
    reasons = {
        "config.json": "it has no config.json",
        "run.json": "run.json cannot be read",
        "result.json": "seed-3 is not finished: 40,000 of 40,000 frames",
        "eval.jsonl": "seed-3 has no evaluation yet",
    }
    assert reasons.get(name, "") in shown(bad)
    (bad / name).mkdir()
    words = shown(bad)
    assert "seed-3" in words and name in words


@pytest.mark.parametrize("name", ODD)
def test_a_value_that_is_none(name: str, bad: Path) -> None:
    whole = (bad / name).read_bytes()
    cases = [(key, value) for key, values in ODD[name].items() for value in values]
    for key, value in cases:
        (bad / name).write_bytes(spoiled(bad / name, key, value))
        words = shown(bad)
        is_return = key in ("mean_return", "train_mean_return")
        reason = "is not finite" if is_return and name not in words else name
        assert "seed-3" in words and reason in words, (key, value)
        (bad / name).write_bytes(whole)


def test_names_that_no_file_can_hold(bad: Path) -> None:
    """Half a surrogate pair is JSON, and no text."""
    for name, key in (("config.json", "task"), ("run.json", "command"), ("alarms.jsonl", "text")):
        (bad / name).write_bytes(spoiled(bad / name, key, "\ud800 half"))
    assert "? half" in shown(bad)
    read_study([bad.parents[3]]).write_csv(bad.parents[4] / "scores.csv")


def test_figures_of_a_study_with_a_bad_run(bad: Path) -> None:
    (bad / "train.jsonl").write_text('{"c": "x"}\n{"c": 1, "agent_steps": 1e23}\n[]\n')
    (bad / "eval.jsonl").write_text('{"frames": 1e23, "mean_return": 5}\n')
    study = read_study([bad.parents[3]])
    for draw in (figures.learning_curves, figures.coefficients, figures.ablation):
        draw(study)


def test_nothing_in_a_run_is_touched(bad: Path) -> None:
    (bad / "eval.jsonl").write_text("[]")
    (bad / "checkpoints" / "frame-000000000010").mkdir(parents=True)
    before = {path: path.stat().st_mtime_ns for path in bad.rglob("*")}
    shown(bad)
    assert {path: path.stat().st_mtime_ns for path in bad.rglob("*")} == before
