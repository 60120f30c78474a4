import pytest

from revbis.io import machine


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
