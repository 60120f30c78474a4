"""The page as a command writes it: where it goes, what is warned of, and when it is rewritten."""

import logging
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.analysis.fake_study import fake_run

from revbis.analysis.page.writer import PageWriter, page_folder
from revbis.cli import main


@contextmanager
def _no_bar(total: int):
    yield lambda text: None


def test_the_page_of_a_single_run_is_in_its_folder(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    assert page_folder([run]) == run / "page"
    assert page_folder([tmp_path]) == page_folder([run, run]) == Path("report")


def test_a_warning_is_logged_once_and_a_new_one_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fake_run(tmp_path / "runs", seed=1)
    (fake_run(tmp_path / "runs", seed=2) / "result.json").unlink()
    writer = PageWriter([tmp_path / "runs"], tmp_path / "page", _no_bar, videos=False, live=False)
    writer.write()
    writer.write()
    assert caplog.text.count("is not finished") == 1
    (tmp_path / "runs" / "other").mkdir()
    (tmp_path / "runs" / "other" / "config.json").write_text("{")
    caplog.clear()
    writer.write()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "other is left out" in caplog.text


def test_watching_as_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each pause of the watch is a turn: nothing there, a run, no change, a second run, Ctrl-C."""
    path, pages = tmp_path / "page" / "index.html", []
    real = PageWriter.write

    def write(self: PageWriter, *, last: bool = False) -> Path:
        pages.append(last)
        return real(self, last=last)

    turns = iter(
        [
            lambda: fake_run(tmp_path / "runs", seed=1),
            lambda: pytest.fail("no reload") if 'data-refresh="10"' not in path.read_text() else 0,
            lambda: fake_run(tmp_path / "runs", seed=2),
        ]
    )

    def pause(seconds: float) -> None:
        turn = next(turns, None)
        if turn is None:
            raise KeyboardInterrupt
        turn()

    monkeypatch.setattr(PageWriter, "write", write)
    monkeypatch.setattr("revbis.analysis.page.writer.time.sleep", pause)
    main(["report", str(tmp_path / "runs"), "-o", str(path.parent), "--watch"])
    printed = capsys.readouterr()
    first, *others = printed.out.splitlines()
    assert first.startswith("waiting: there is no run to read")
    assert others == [f"open {path}", "", f"open {path}"]
    assert pages == [False, False, False, True]  # without a run, with one, with two, at the end
    assert "data-refresh" not in path.read_text().partition("<body")[0]  # it lies still
    assert printed.err.count("one seed only") == 1
