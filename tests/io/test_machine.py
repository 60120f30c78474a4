"""Memory and processor."""

import logging
import os

import numpy as np
import psutil
import pytest
import torch

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


CPUINFO = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC
stepping\t: 1

processor\t: 1
model name\t: another
"""
ARM = "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        (CPUINFO, "AMD EPYC, cpu family 25, model 17, stepping 1"),
        (ARM, "aarch64, CPU implementer 0x41, CPU part 0xd0c"),
        ("", "aarch64"),
        (None, "aarch64"),  # no such file
    ],
)
def test_processor(facts, name, tmp_path, monkeypatch):
    if facts is not None:
        (tmp_path / "cpuinfo").write_text(facts)
    monkeypatch.setattr(machine, "_FACTS", tmp_path / "cpuinfo")
    monkeypatch.setattr(machine.platform, "processor", lambda: "")
    monkeypatch.setattr(machine.platform, "machine", lambda: "aarch64")
    assert machine.processor() == name


@pytest.mark.parametrize(
    ("vendor", "family", "flags", "lacks"),
    [
        ("AuthenticAMD", 26, "fma avx2 avx512f", True),
        ("AuthenticAMD", 26, "fma avx2", False),
        ("AuthenticAMD", 25, "fma avx2 avx512f", False),  # 256 bits at once, too
        ("GenuineIntel", 26, "fma avx2 avx512f", False),
        (None, 0, "", False),
    ],
)
def test_where_mkl_lacks_avx512(vendor, family, flags, lacks, tmp_path, monkeypatch):
    facts = f"vendor_id\t: {vendor}\ncpu family\t: {family}\nflags\t\t: {flags}\n\nprocessor\t: 1"
    (tmp_path / "cpuinfo").write_text(ARM if vendor is None else facts)
    monkeypatch.setattr(machine, "_FACTS", tmp_path / "cpuinfo")
    assert machine.mkl_lacks_avx512() == lacks


def test_processor_of_a_mac(tmp_path, monkeypatch):
    """Its sysctl, here a program of that name."""
    monkeypatch.setattr(machine, "_FACTS", tmp_path / "none")
    monkeypatch.setattr(machine.platform, "system", lambda: "Darwin")
    program = tmp_path / "sysctl"
    program.write_text('#!/bin/sh\n[ "$*" = "-n machdep.cpu.brand_string" ] && echo "Apple M3"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert machine.processor() == "Apple M3"
    program.write_text("#!/bin/sh\nexit 1\n")
    monkeypatch.setattr(machine.platform, "processor", lambda: "arm")
    assert machine.processor() == "arm"


def test_linear_algebra_is_what_numpy_and_torch_report():
    found = machine.blas()
    assert (
        found["numpy"].split()[0]
        == np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]
    )
    report = torch.__config__.show()
    words = found["torch"].replace(",", "").split()
    assert words and all(word in report for word in words if word not in ("MKL", *LABELS))


LABELS = ("oneDNN", "instructions")


def test_conditions_of_a_run():
    about = {
        "processor": "AMD EPYC",
        "threads": {"torch": 1, "cores": 2},
        "blas": {"numpy": "openblas 0.3", "torch": "mkl"},
        "versions": {"revbis": "0.2.0", "python": "3.11.7", "torch": "2.13", "mujoco": "3.3.0"},
        "revision": "abc",
    }
    assert machine.conditions(about) == {
        "processor": "AMD EPYC",
        "threads": "1",
        "BLAS of numpy": "openblas 0.3",
        "BLAS of torch": "mkl",
        "torch": "2.13",
        "mujoco": "3.3.0",
    }
    assert machine.conditions({}) == {}


def test_cores_are_those_that_may_be_used():
    assert 1 <= machine.usable_cores() <= (os.cpu_count() or 1)
