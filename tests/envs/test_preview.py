"""`revbis env preview` and `revbis env list`."""

import re

import numpy as np
import pytest
from PIL import Image

from revbis.cli import main
from revbis.envs import preview as module
from revbis.envs import task_names
from revbis.envs.preview import Preview, draw_sheet, preview


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    monkeypatch.setattr(module, "_TIMED_SECONDS", 0.05)
    monkeypatch.setattr(module, "_PATIENCE", 0.0)


def assert_is_a_picture(path) -> None:
    with Image.open(path) as image:
        image.load()
        assert image.format == "PNG" and min(image.size) > 200
        assert np.asarray(image.convert("RGB")).std() > 10


@pytest.mark.env("dmc")
def test_a_preview_of_a_task_that_mujoco_draws(tmp_path, capsys) -> None:
    path = tmp_path / "new" / "sheet.png"
    words = ["--pixels", "24", "--action-repeat", "4", "--seed", "3", "--out", str(path)]
    main(["env", "preview", "dmc:cartpole_balance", *words])
    printed = capsys.readouterr().out
    for text in ("uint8 (9, 24, 24)", "float32 (1,)", "repeated 4×", "1000 simulator steps"):
        assert text in printed
    for text in ("random return", "steps/s", "full ", "fast ", "noise ", "shapes ", "gaussian 0.2"):
        assert text in printed
    assert f"written to {path}" in "".join(printed.splitlines())
    assert_is_a_picture(path)


@pytest.mark.env("metaworld")
def test_every_way_of_drawing_shows_the_same_moments(tmp_path) -> None:
    clips = tmp_path / "clips"
    for name, colour in (("a", (250, 0, 250)), ("b", (250, 0, 250))):
        (clips / name).mkdir(parents=True)
        Image.new("RGB", (16, 16), colour).save(clips / name / "0.png")
    rows: list[str] = []
    settings = {"seed": 2, "pixels": 24, "action_repeat": 2}
    shown = preview("metaworld:reach", **settings, video=str(clips), report=rows.append)
    names = ["full", "fast", "noise", "shapes", "gaussian 0.2", "video"]
    assert rows == names == list(shown.images)
    assert shown.times == [0, 62, 126, 188, 250, 312, 376, 438]
    assert shown.horizon == 500 and len(shown.returns) == 1
    assert all(fps > 0 for fps in shown.frames_per_second.values())
    for pictures in shown.images.values():
        assert pictures.shape == (8, 3, 24, 24)
        assert (pictures[0] != pictures[-1]).any()
    full, fast, video = (shown.images[name].astype(int) for name in ("full", "fast", "video"))
    assert 0 < np.abs(full - fast).mean() < 20  # small pictures are all edges
    background_mask = (video == np.array([250, 0, 250]).reshape(3, 1, 1)).all(axis=1, keepdims=True)
    assert 0.2 < background_mask.mean() < 0.8
    np.testing.assert_array_equal(
        np.where(background_mask, 0, video), np.where(background_mask, 0, fast)
    )


def test_a_preview_of_ones_own_environment(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    main(["env", "preview", "envs.toys:Good", "--pixels", "32"])
    printed = capsys.readouterr().out
    assert "no time limit" in printed and "full" in printed and "fast" not in printed
    assert "gaussian 0.2" in printed and "shapes" not in printed
    assert_is_a_picture(tmp_path / "preview-envs.toys-Good.png")


def test_the_moments_and_returns_of_a_short_episode(monkeypatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 1e9)
    shown = preview("envs.toys:Clock", seed=1, pixels=8, action_repeat=2)
    assert shown.times == [0, 7]  # of the 1000 steps that an endless task would be shown
    assert shown.images["full"][:, 0, 0, 0].tolist() == [0, 7]
    assert shown.images["gaussian 0.2"].std() > 20  # of plain grey frames
    assert shown.returns == [127.0] * 3
    numbers = shown.numbers()
    assert numbers["random return"] == "127.0 (127.0 to 127.0, 3 episodes)"
    assert numbers["observation"] == "uint8 (9, 8, 8)"


def test_an_endless_task_is_shown_for_a_while() -> None:
    shown = preview("envs.toys:Endless", seed=1, pixels=8, action_repeat=2)
    assert shown.times == [0, 126, 250, 376, 500, 626, 750, 876]
    assert shown.horizon is None


def test_a_sheet_has_a_row_for_each_way(tmp_path) -> None:
    picture = np.zeros((1, 3, 8, 8), dtype=np.uint8)
    for rows in (1, 3):
        pictures = {f"row {row}": picture for row in range(rows)}
        speeds = dict.fromkeys(pictures, 1.0)
        shown = Preview("task", [0], pictures, speeds, "uint8", "float32", None, [1.0])
        draw_sheet(shown, tmp_path / f"{rows}.png")
    with Image.open(tmp_path / "1.png") as one, Image.open(tmp_path / "3.png") as three:
        assert three.size[0] == one.size[0] and three.size[1] > 1.5 * one.size[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["envs.toys:Good", "--pixels", "3"], "pixels must be at least 8"),
        (["envs.toys:Good", "--video", "nowhere"], "distractor|needs a folder|draws its own"),
    ],
)
def test_a_preview_that_cannot_be_made(capsys, words: list[str], message: str) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["env", "preview", *words])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("revbis: error: ") and re.search(message, error)


@pytest.mark.env("dmc", "metaworld", gl=False)
def test_the_list_has_every_task(capsys) -> None:
    main(["env", "list"])
    output = capsys.readouterr()
    assert output.out.split() == task_names("dmc") + task_names("metaworld")
    assert len(output.out.split()) == 113 and output.err == ""
