"""The page as a command writes it: where it goes, what is warned of, and when it is rewritten."""

import logging
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.analysis.fake_study import fake_run

from revbis.analysis.page.writer import PageWriter, page_folder, watch


@contextmanager
def _no_bar(total: int):
    yield lambda text: None


def _writer(tmp_path: Path, *, live: bool = False) -> PageWriter:
    return PageWriter([tmp_path / "runs"], tmp_path / "page", _no_bar, videos=False, live=live)


def test_the_page_of_a_single_run_is_in_its_folder(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    assert page_folder([run]) == run / "page"
    assert page_folder([tmp_path]) == page_folder([run, run]) == Path("report")


def test_a_page_that_is_watched_reloads_itself_until_the_last(tmp_path: Path) -> None:
    fake_run(tmp_path / "runs", seed=1)
    writer = _writer(tmp_path, live=True)
    assert "data-refresh" in writer.write().read_text().partition("<body")[0]
    assert "data-refresh" not in writer.write(last=True).read_text().partition("<body")[0]


def test_a_warning_is_logged_once_and_a_new_one_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fake_run(tmp_path / "runs", seed=1)
    (fake_run(tmp_path / "runs", seed=2) / "result.json").unlink()
    writer = _writer(tmp_path)
    writer.write()
    writer.write()
    assert caplog.text.count("is not finished") == 1
    (tmp_path / "runs" / "other").mkdir()
    (tmp_path / "runs" / "other" / "config.json").write_text("{")
    caplog.clear()
    writer.write()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "other is left out" in caplog.text


def test_watching_writes_again_when_a_record_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pause of the watch is a turn: nothing there, a run, no change, a second run, Ctrl-C."""
    writer, pages, shown = _writer(tmp_path, live=True), [], []
    real = writer.write

    def write(*, last: bool = False) -> Path:
        pages.append(last)
        return real(last=last)

    turns = iter(
        [
            lambda: fake_run(tmp_path / "runs", seed=1),
            lambda: None,
            lambda: fake_run(tmp_path / "runs", seed=2),
        ]
    )

    def pause(seconds: float) -> None:
        turn = next(turns, None)
        if turn is None:
            raise KeyboardInterrupt
        turn()

    monkeypatch.setattr(writer, "write", write)
    monkeypatch.setattr("revbis.analysis.page.writer.time.sleep", pause)
    watch(writer, shown.append)
    path = tmp_path / "page" / "index.html"
    assert shown[0].startswith("waiting: there is no run to read")
    assert shown[1:] == [f"open {path}", f"\nopen {path}"]
    assert pages == [False, False, False, True]  # without a run, with one, with two, at the end
