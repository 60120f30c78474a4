"""Memory and processor."""

import logging

import psutil
import pytest

from revbis.io import machine


def test_what_does_not_fit_is_refused_with_sizes_and_remedy(monkeypatch):
    monkeypatch.setattr(machine, "available_bytes", lambda: 2_000_000)
    with pytest.raises(MemoryError, match=r"the thing takes 3 MB, but only 2 MB is free; use less"):
        machine.ensure_fits(3_000_000, "the thing", "use less")


def test_what_fits_barely_is_allowed_in_silence(monkeypatch, caplog):
    monkeypatch.setattr(machine, "available_bytes", lambda: 1000)
    machine.ensure_fits(1000, "the thing", "use less")
    assert caplog.records == []


def test_what_is_large_is_said(monkeypatch, caplog):
    monkeypatch.setattr(machine, "available_bytes", lambda: 8_000_000_000)
    with caplog.at_level(logging.WARNING, "revbis"):
        machine.ensure_fits(1_000_000_000, "the thing", "use less")
    assert caplog.messages == ["the thing takes 1 GB of memory (8 GB is free)"]


@pytest.fixture
def cgroup(monkeypatch, tmp_path):
    """Pretends a machine with 5000 bytes free and a control group with the given files."""

    def write(limit, used):
        (tmp_path / "memory.max").write_text(limit)
        (tmp_path / "memory.current").write_text(used)
        monkeypatch.setattr(machine, "control_groups", lambda controller: [tmp_path])
        monkeypatch.setattr(machine, "_machine_bytes", lambda: (8000, 5000))

    return write


@pytest.mark.parametrize(
    ("limit", "used", "free"),
    [
        ("3000\n", "1000\n", 2000),
        ("90000\n", "1000\n", 5000),
        ("1000\n", "3000\n", 0),
        ("max\n", "1000\n", 5000),
        ("3000\n", "rubbish\n", 5000),
    ],
)
def test_control_group_limit_is_honoured(cgroup, limit, used, free):
    cgroup(limit, used)
    assert machine.available_bytes() == free


def test_page_cache_of_the_control_group_counts_as_free(cgroup, tmp_path):
    cgroup("3000\n", "2500\n")
    (tmp_path / "memory.stat").write_text("anon 700\ninactive_file 1800\nslab 0\n")
    assert machine.available_bytes() == 2300
    (tmp_path / "memory.stat").write_text("what is this\n")
    assert machine.available_bytes() == 500


def test_no_control_group_leaves_the_machine(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "_PROC", tmp_path)
    assert machine.control_groups("memory") == []
    monkeypatch.setattr(machine, "control_groups", lambda controller: [tmp_path / "missing"])
    monkeypatch.setattr(machine, "_machine_bytes", lambda: (9, 7))
    assert (machine.total_bytes(), machine.available_bytes()) == (9, 7)


@pytest.mark.parametrize("line", ["0::/outer/inner", "4:cpu,memory:/outer/inner"])
def test_the_narrowest_control_group_decides(monkeypatch, tmp_path, line):
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text(f"{line}\n9:pids:/other\n")
    version_2 = line.startswith("0::")
    top = tmp_path if version_2 else tmp_path / "memory"
    names = machine._LIMITS[0 if version_2 else 1]
    for folder, limit in ((top / "outer", 4000), (top / "outer" / "inner", 3000)):
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in zip(names, (limit, 1000), strict=True):
            (folder / name).write_text(f"{value}\n")
    monkeypatch.setattr(machine, "_PROC", tmp_path)
    monkeypatch.setattr(machine, "_GROUPS", tmp_path)
    folders = machine.control_groups("memory")
    assert folders[0] == top / "outer" / "inner" and folders[-1] == top
    monkeypatch.setattr(machine, "_machine_bytes", lambda: (8000, 5000))
    assert (machine.total_bytes(), machine.available_bytes()) == (3000, 2000)


@pytest.mark.parametrize("problem", [OSError, psutil.AccessDenied])
def test_where_psutil_cannot_tell(monkeypatch, problem):
    def refuse(*_):
        raise problem

    monkeypatch.setattr(psutil, "virtual_memory", refuse)
    monkeypatch.setattr(psutil, "Process", refuse)
    total, available = machine._machine_bytes()
    assert total == available > 0
    assert machine.resident_bytes() == 0


def test_this_machine_and_this_process_have_some_memory():
    assert 0 < machine.available_bytes() <= machine.total_bytes()
    assert 5_000_000 < machine.resident_bytes() <= machine._machine_bytes()[0]


@pytest.mark.parametrize(
    ("flags", "units"),
    [
        ("fpu avx2 avx512f avx512_bf16 amx_bf16", "amx_bf16"),
        ("fpu avx512f avx512_bf16", "avx512_bf16"),
        ("fpu avx2 avx512f avx512_vnni", ""),
        (None, ""),
    ],
)
def test_units_are_those_of_the_processor(tmp_path, monkeypatch, flags, units):
    facts = tmp_path / "cpuinfo"
    if flags is not None:
        facts.write_text(f"processor : 0\nflags : {flags}\n")
    monkeypatch.setattr(machine, "_FACTS", facts)
    machine.bfloat16_units.cache_clear()
    assert machine.bfloat16_units() == units
    machine.bfloat16_units.cache_clear()


def test_only_a_cpu_without_units_is_refused(monkeypatch):
    monkeypatch.setattr(machine, "bfloat16_units", lambda: "")
    machine.check_bfloat16("cuda")
    with pytest.raises(ValueError, match="use precision float32, or a GPU"):
        machine.check_bfloat16("cpu")
    monkeypatch.setattr(machine, "bfloat16_units", lambda: "bf16")
    machine.check_bfloat16("cpu")
