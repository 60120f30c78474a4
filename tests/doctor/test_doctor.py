import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, requires

import pytest

from revbis.cli import main
from revbis.doctor import probe as doctor_probe
from revbis.doctor import report as doctor
from revbis.doctor.report import Finding, Report
from revbis.envs.rendering import backend_loads

SIMULATORS = ("gymnasium", "mujoco", "dm_control", "metaworld")
DRAWN = {"renderer": "NVIDIA A100", "vendor": "NVIDIA", "full": 900.0, "fast": 2000.0}
ANSWERS = {
    "machine": {
        "cores": 64,
        "affinity": 8,
        "quota": None,
        "memory": 64_000_000_000,
        "memory free": 32_000_000_000,
        "disk free": {"/runs": 500_000_000_000},
        "read only": [],
        "nvidia": None,
    },
    "torch": {
        "version": "2.13.0",
        "threads": 8,
        "cuda build": True,
        "device": "cpu",
        "device name": "",
    },
    "chosen": {"backend": "egl"},
    "egl": DRAWN,
    "osmesa": {**DRAWN, "renderer": "llvmpipe (LLVM 15.0.6, 256 bits)"},
    "glfw": {"error": "not asked"},
    **{name: {} for name in SIMULATORS},
}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict]:
    """A machine on which everything works, to be broken; nothing of the real one is asked."""
    told = {key: dict(value) for key, value in ANSWERS.items()}

    def ask(question: str, **environment: str) -> dict:
        return told[environment["MUJOCO_GL"] if question == "draw" else question]

    pins = doctor.tested_versions()
    versions = {name: pins[doctor._plain(name)].removeprefix("==") for name in SIMULATORS}
    versions |= {"numpy": "2.3.5", "gymnasium": "1.4.0"}

    def version(name: str) -> str:
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    for name in ("MUJOCO_GL", "PYOPENGL_PLATFORM", "MUJOCO_EGL_DEVICE_ID", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(doctor, "ask", ask)
    monkeypatch.setattr(doctor, "version", version)
    monkeypatch.setattr(doctor.sys, "platform", "linux")
    monkeypatch.setattr(doctor.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(doctor, "_in_container", lambda: False)
    told["versions"] = versions
    return told


def found(report: Report, name: str) -> Finding:
    return next(each for rows in report.rows().values() for each in rows if each.name == name)


def run(capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        main(["doctor"])
    return stop.value.code, capsys.readouterr().out


def test_a_machine_on_which_all_works(answers, capsys) -> None:
    code, text = run(capsys)
    assert code == 0
    assert text.splitlines()[-1] == "training works: dm_control and metaworld, drawn with egl"
    for words in (
        "drawing, 84×84 (training uses egl)",
        "NVIDIA A100 by NVIDIA; 900 frames/s in full quality, 2000 in fast",
        "llvmpipe (LLVM 15.0.6, 256 bits) by NVIDIA, in software",
        "8 of 64 cores may be used; torch uses 8 threads, OMP_NUM_THREADS is not set",
        "32 GB free of 64 GB",
        "500 GB free in /runs",
        f"{sys.version_info.major}.{sys.version_info.minor}.",
        "needs a screen (DISPLAY); not needed for training",
        'to have it: pip install "ray>=2.50',
    ):
        assert words in text
    states = {each.state for rows in doctor.examine().rows().values() for each in rows}
    assert states == {"ok", "not needed"}


def test_says_what_it_is_doing(answers) -> None:
    said: list[str] = []
    doctor.examine(said.append)
    assert [text for text in said if "drawing" in text] == [
        f"drawing with {name}" for name in ("egl", "osmesa", "glfw")
    ]


@pytest.mark.parametrize("gone", [("dm_control",), ("metaworld",)])
def test_one_suite_is_enough(gone: tuple[str, ...], answers) -> None:
    for name in gone:
        del answers["versions"][name]
    report = doctor.examine()
    assert report.works and gone[0] not in report.verdict
    assert found(report, gone[0]).state == "missing"


def test_training_needs_a_suite_and_gymnasium_and_torch(answers) -> None:
    answers["torch"] = {"error": "torch is not installed", "absent": "torch"}
    del answers["versions"]["gymnasium"]
    answers["dm_control"] = {"error": "crashes (SIGSEGV)"}
    report = doctor.examine()
    assert not report.works
    assert report.verdict == (
        "training would not work: torch is missing; gymnasium is missing; "
        'do this: pip install "torch>=2.5" && pip install "gymnasium>=1.0"'
    )
    assert found(report, "dm_control").said == "1.0.28: crashes (SIGSEGV)"
    del answers["versions"]["metaworld"]
    verdict = doctor.examine().verdict
    assert "no simulator works (dm_control is broken, metaworld is missing)" in verdict
    assert '"mujoco==3.3.0"' in verdict.split("do this: ")[1]


def test_the_backend_that_training_uses_must_draw(answers, monkeypatch) -> None:
    answers["egl"] = {"error": "hangs: no answer within 120 s"}
    report = doctor.examine()
    assert report.verdict == (
        "training would not work: egl cannot draw here; do this: export MUJOCO_GL=osmesa"
    )
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    answers["chosen"] = {"backend": "osmesa"}
    report = doctor.examine()
    assert report.works and report.verdict.endswith("drawn with osmesa")
    assert "drawing, 84×84 (training uses osmesa, because MUJOCO_GL=osmesa)" in report.rows()
    answers["osmesa"] = {"error": "crashes (SIGABRT)"}
    assert "no OpenGL backend draws; do this: sudo apt-get" in doctor.examine().verdict


@pytest.mark.parametrize(("word", "canonical"), [("glx", "glfw"), ("nonsense", "nonsense")])
def test_the_words_that_mujoco_knows_for_glfw(word: str, canonical: str, answers) -> None:
    answers["chosen"] = {"backend": word}
    report = doctor.examine()
    assert report.chosen == canonical and not report.works
    assert report.verdict.endswith("do this: export MUJOCO_GL=egl")


def test_without_libraries_the_line_that_installs_them(answers, monkeypatch) -> None:
    missing = {"error": "the system's library is missing or finds no device", "library": False}
    answers |= {"egl": missing, "osmesa": missing, "chosen": {"error": "no OpenGL library"}}
    report = doctor.examine()
    assert not report.works
    assert report.verdict == (
        "training would not work: no OpenGL backend draws; "
        "do this: sudo apt-get install -y libegl1 libgl1"
    )
    assert "training finds no backend" in list(report.rows())[1]
    egl, osmesa = found(report, "egl"), found(report, "osmesa")
    assert egl.state == osmesa.state == "missing"
    assert osmesa.fixes[0] == "sudo apt-get install -y libosmesa6 libgl1"
    assert egl.fixes[1].startswith("conda install -c conda-forge")
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 0)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    fixes = found(doctor.examine(), "egl").fixes
    assert fixes[0].startswith("conda") and fixes[1].startswith("apt-get")


def test_simulators_are_tried_with_drawing_off_when_nothing_draws(answers, monkeypatch) -> None:
    settings: list[dict[str, str]] = []
    ask = doctor.ask

    def watched(question: str, **environment: str) -> dict:
        if question == "dm_control":
            settings.append(environment)
        return ask(question, **environment)

    monkeypatch.setattr(doctor, "ask", watched)
    doctor.examine()
    answers["egl"] = {"error": "crashes"}
    doctor.examine()
    assert settings == [{}, {"MUJOCO_GL": "disable"}]


def test_software_drawing_beside_a_gpu(answers, monkeypatch) -> None:
    answers["machine"]["nvidia"] = "550.54.15"
    answers["torch"] |= {"device": "cuda", "device name": "NVIDIA A100"}
    assert found(doctor.examine(), "egl").state == "ok"
    answers["egl"] = answers["osmesa"]
    report = doctor.examine()
    egl = found(report, "egl")
    assert report.works and egl.state == "warning" and "NVIDIA GPU" in egl.said
    assert egl.fixes == ("sudo apt-get install -y libnvidia-gl-550",)
    assert found(report, "osmesa").state == "ok"
    assert found(report, "torch").said == "2.13.0, device cuda NVIDIA A100"
    answers["machine"]["nvidia"] = ""  # a GPU whose driver does not tell its version
    assert "libnvidia-gl-<driver version>" in found(doctor.examine(), "egl").fixes[0]
    monkeypatch.setattr(doctor, "_in_container", lambda: True)
    assert "NVIDIA_DRIVER_CAPABILITIES=all" in found(doctor.examine(), "egl").fixes[0]
    answers["egl"] = {"error": "no display"}
    assert "NVIDIA_DRIVER_CAPABILITIES=all" in found(doctor.examine(), "egl").fixes[0]


@pytest.mark.parametrize(
    ("change", "state", "words"),
    [
        ({"cuda build": False}, "warning", "--force-reinstall"),
        ({}, "warning", "nvidia-smi"),
        ({"device": "cuda", "device error": "no kernel image"}, "broken", "pip install"),
        ({"device": "cuda"}, "ok", ""),
        ({"device": "cuda", "version": "2.4.1+cu121"}, "warning", 'pip install "torch>=2.5"'),
    ],
)
def test_torch_beside_a_gpu(change: dict, state: str, words: str, answers) -> None:
    answers["machine"]["nvidia"] = ""
    answers["torch"] |= change
    torch = found(doctor.examine(), "torch")
    assert torch.state == state
    assert words in " ".join(torch.fixes) and bool(torch.fixes) == bool(words)


def test_variables_that_stand_in_the_way(answers, monkeypatch) -> None:
    monkeypatch.setenv("PYOPENGL_PLATFORM", "osmesa")
    answers["egl"] = {"error": "Cannot use EGL rendering platform."}
    assert found(doctor.examine(), "egl").fixes == ("unset PYOPENGL_PLATFORM",)
    monkeypatch.delenv("PYOPENGL_PLATFORM")
    monkeypatch.setenv("MUJOCO_EGL_DEVICE_ID", "7")
    assert found(doctor.examine(), "egl").fixes[0] == "unset MUJOCO_EGL_DEVICE_ID"


def test_more_threads_than_cores(answers) -> None:
    answers["machine"]["quota"] = 1.5
    threads = found(doctor.examine(), "threads")
    assert threads.state == "warning" and threads.said.startswith("2 of 64 cores may be used")
    assert threads.fixes == ("export OMP_NUM_THREADS=2",)


def test_little_room_and_a_folder_that_cannot_be_written(answers) -> None:
    answers["machine"] |= {"memory free": 10**9, "disk free": {"/a": 10**9, "/b": 10**12}}
    answers["machine"]["read only"] = ["/b"]
    report = doctor.examine()
    assert report.works and found(report, "memory").state == "warning"
    disks = [each for each in report.machine if each.name == "disk"]
    assert [each.state for each in disks] == ["warning", "warning"]
    assert "too little" in disks[0].said and "read-only" in disks[1].said
    answers["machine"] = {"error": "the folder is gone"}
    assert found(doctor.examine(), "machine").said == "the folder is gone"


def test_versions_that_were_not_tested(answers) -> None:
    answers["versions"] |= {"numpy": "2.4.0", "mujoco": "3.4.0", "ray": "2.49.1"}
    report = doctor.examine()
    assert report.works
    numpy, mujoco = found(report, "numpy"), found(report, "mujoco")
    assert numpy.state == "warning" and numpy.said.startswith("2.4.0; revbis is tested with numpy")
    assert "<2.4" in numpy.fixes[0]
    assert mujoco.fixes == ('pip install "mujoco==3.3.0"',)
    assert found(report, "ray").state == "warning"
    assert found(report, "dm_control").state == "ok"


@pytest.mark.parametrize(
    ("wanted", "version", "fits"),
    [
        ("<2.4,>=2.0", "2.3.5", True),
        ("<2.4,>=2.0", "2.4.0", False),
        ("<2.4,>=2.0", "1.26.4", False),
        ("==3.3.0", "3.3", True),
        ("==3.3.0", "3.3.1", False),
        (">=2.5", "2.13.0+cpu", True),
        (">2.5", "2.5.0", False),
        ("<=2.5", "2.5.1", False),
        ("", "0.0.1", True),
    ],
)
def test_accepts(wanted: str, version: str, fits: bool) -> None:
    assert doctor.accepts(wanted, version) is fits


def test_every_extra_and_pin_is_in_the_metadata() -> None:
    pins = doctor.tested_versions()
    assert pins["dm-control"] == "==1.0.28" and "<2.4" in pins["numpy"] and pins["ray"] == ">=2.50"
    text = "\n".join(requires("revbis") or ())
    for name in SIMULATORS:
        assert doctor._install(name)[0].startswith('pip install "') and doctor.EXTRAS[name] in text


def test_with_nothing_but_the_core(monkeypatch, capsys) -> None:
    """No simulator can be imported, here or in the processes that are asked."""
    absent = (*SIMULATORS, "ray", "av", "OpenGL", "glfw")
    code = f"import sys; sys.modules.update(dict.fromkeys({absent}))\n"
    code += "from revbis.doctor.probe import main; main(sys.argv[1])"
    monkeypatch.setattr(doctor_probe, "_command", lambda name: [sys.executable, "-c", code, name])
    real = doctor.version

    def version(name: str) -> str:
        if name in absent:
            raise PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(doctor, "version", version)
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    code_of_exit, text = run(capsys)
    assert code_of_exit == 1
    last = text.splitlines()[-1]
    assert last.startswith("training would not work: no simulator works")
    assert 'pip install "' in last and '"mujoco==3.3.0"' in last
    words = [line.split() for line in text.splitlines()]
    for name in SIMULATORS:
        assert ["missing", name, "not", "installed"] in words
    state_of = {
        name: line for line in text.splitlines() for name in ("torch", "egl") if name in line[:22]
    }
    assert state_of["torch"].startswith(("  ok", "  warning"))
    assert state_of["egl"].startswith("  not tried" if backend_loads("egl") else "  missing")


def test_fixes_are_not_broken_over_lines(answers, capsys, monkeypatch) -> None:
    for name in SIMULATORS:
        del answers["versions"][name]
    answers["machine"]["disk free"] = {"/a folder " * 30: 10**12}
    code, text = run(capsys)
    lines = text.splitlines()
    verdict = doctor.examine().verdict
    assert code == 1 and lines[-1] == verdict and len(verdict) > 140
    wrapped = [line for line in lines if "a folder" in line]
    assert len(wrapped) > 1 and all(len(line) <= 140 for line in wrapped)


def test_a_report_without_parts_does_not_work() -> None:
    report = Report((), (), (), "")
    assert not report.works and "do this" not in report.verdict
    assert replace(Finding("a", "ok", ""), state="broken").works is False
