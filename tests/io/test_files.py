"""Atomic writes, files of JSON lines, and what is in zip files."""

import json
import math
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from revbis.io import files
from revbis.io.files import (
    atomic_write,
    line_of,
    read_lines,
    read_records,
    shown_path,
    unzip,
)


@pytest.mark.skipif("sys.platform != 'linux'", reason="needs /proc")
def test_a_file_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch) -> None:
    path, steps = tmp_path / "result.json", []
    replace = Path.replace

    def sync(descriptor: int) -> None:
        synced = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        steps.append("folder" if synced == tmp_path else synced.read_bytes())

    def rename(source: Path, target: Path) -> Path:
        steps.append(target.name)
        return replace(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", rename)
    atomic_write(path, b"all of it")
    assert steps == [b"all of it", "result.json", "folder"]


def test_what_fails_leaves_the_old_file(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "result.json"
    atomic_write(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*result\.json"):
        atomic_write(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def zip_file(path: Path, content: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in content.items():
            file.writestr(name, text)
    return path


def test_a_zip_file_is_unpacked_once_and_again_when_it_has_changed(tmp_path: Path) -> None:
    path = zip_file(tmp_path / "a.zip", {"cpu/one/config.json": "{}", "note": "1", "empty/": ""})
    folder = unzip(path)
    assert (folder / "cpu/one/config.json").read_text() == "{}" and (folder / "empty").is_dir()
    assert shown_path(folder / "cpu") == path.resolve() / "cpu" and shown_path(path) == path
    (folder / "note").write_text("kept")
    assert unzip(path) == folder and (folder / "note").read_text() == "kept"
    zip_file(path, {"other": "22"})
    assert unzip(path) == folder and [each.name for each in folder.iterdir()] == ["other"]
    assert list(tmp_path.iterdir()) == [path]


def test_what_was_unpacked_is_removed_when_the_process_ends(tmp_path: Path) -> None:
    path = zip_file(tmp_path / "a.zip", {"note": "1"})
    code = """if True:
        import os, sys
        from pathlib import Path
        from revbis.io.files import unzip
        folder = unzip(Path(sys.argv[1]))
        if not os.fork():
            sys.exit()  # the end of a fork is not the end
        os.wait()
        print(folder, (folder / "note").exists())
    """
    command = [sys.executable, "-c", code, str(path)]
    folder, existed = subprocess.run(command, capture_output=True, text=True).stdout.split()
    assert existed == "True" and not Path(folder).exists()


def link(path: Path) -> None:
    entry = zipfile.ZipInfo("link")
    entry.external_attr = 0o120777 << 16
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(entry, "/etc/passwd")


def damaged(path: Path) -> None:
    content = bytearray(zip_file(path, {"note": "something long enough" * 9}).read_bytes())
    content[40] ^= 255
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.write_text("no zip"), "File is not a zip file"),
        (lambda path: path.write_bytes(b""), "File is not a zip file"),
        (lambda path: path.write_bytes(b"PK\x05\x06" + bytes(10)), "not a zip file"),
        (damaged, "invalid|Bad CRC|Error -3"),
        (link, "'link' in it is neither a file nor a folder"),
        (lambda path: zip_file(path, {"../outside": ""}), "'../outside' in it leads out"),
        (lambda path: zip_file(path, {"a/../../b": ""}), "in it leads out of the folder"),
        (lambda path: zip_file(path, {"/etc/passwd": ""}), "'/etc/passwd' in it leads out"),
        (lambda path: zip_file(path, {"a": "", "a/b": ""}), "File exists|Not a directory"),
        (lambda path: zip_file(path, {"a" * 300: ""}), "File name too long"),
        (lambda path: zip_file(path, {"a": "1" * 1001}), "1 files of 1,001 bytes, and there is"),
        (lambda path: zip_file(path, {f"{i}": "" for i in range(21)}), "it has 21 files of 0"),
        (lambda path: None, "No such file"),
        (Path.mkdir, "Is a directory"),
    ],
)
def test_bad_zip_files(make, reason: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(files, "_MOST_BYTES", 1000)
    monkeypatch.setattr(files, "_MOST_ENTRIES", 20)
    path = tmp_path / "a.zip"
    make(path)
    with pytest.raises(ValueError, match=rf"a\.zip cannot be unpacked: .*({reason})") as caught:
        unzip(path)
    assert "\n" not in str(caught.value)
    folder = files._temporary_folder().joinpath(*path.resolve().parts[1:])
    assert not folder.exists() and not (folder.parent / "outside").exists()


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "lines"
    records = [{"frames": 1, "returns": [1.5, 2.0]}, {"frames": 2, "name": "ä\nb", "c": None}]
    path.write_text("".join(map(line_of, records)))
    assert read_records(path) == records
    assert read_lines(path).records == list(enumerate(records, 1))


def test_numbers_that_json_does_not_have_become_words():
    line = line_of({"a": math.nan, "b": [math.inf, 1.0], "c": -math.inf})
    assert json.loads(line) == {"a": "nan", "b": ["inf", 1.0], "c": "-inf"}
    assert line.endswith("}\n") and line.count("\n") == 1


def test_malformed_lines_are_skipped_and_reported(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b'{"frames": 1}\n[2]\n\n\xff{"frames": 3}\n{"frames": 4}\n{"fra')
    lines = read_lines(path)
    assert lines.records == [(1, {"frames": 1}), (5, {"frames": 4})]
    assert lines.malformed == [2, 3, 4, 6]


@pytest.mark.parametrize("line", ["[" * 100_000, "NaN", "3", '"text"', "null", "{'a': 1}"])
def test_no_line_is_too_malformed(tmp_path, line):
    path = tmp_path / "lines"
    path.write_text(line)
    assert read_lines(path) == ([], [1], "")


def test_no_file_has_no_lines_and_what_cannot_be_read_is_reported(tmp_path):
    assert read_lines(tmp_path / "none") == ([], [], "")
    assert read_lines(tmp_path) == ([], [], "Is a directory")
    (tmp_path / "empty").touch()
    assert read_lines(tmp_path / "empty") == ([], [], "")


def test_errors_name_the_file_and_not_its_temporary_name(tmp_path: Path) -> None:
    """The temporary name, which is longer, cannot even be looked for to be deleted."""
    path = tmp_path / ("n" * 254)
    with pytest.raises(OSError, match="too long") as caught:
        atomic_write(path, b"")
    assert caught.value.filename == str(path)
