import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, requires

import pytest
from packaging.specifiers import SpecifierSet

from revbis.cli import main
from revbis.doctor import Finding, Report, examination, examine
from revbis.envs.rendering import backend_loads
from revbis.io import plugins

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
        "bfloat16": "avx512_bf16",
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
    answers = {key: dict(value) for key, value in ANSWERS.items()}

    def ask(question: str, **environment: str) -> dict:
        return answers[environment["MUJOCO_GL"] if question == "draw" else question]

    versions = {"dm_control": "1.0.28", "gymnasium": "1.4.0", "metaworld": "3.1.1"}
    versions |= {"mujoco": "3.3.0", "numpy": "2.3.5"}

    def version(name: str) -> str:
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    for name in ("MUJOCO_GL", "PYOPENGL_PLATFORM", "MUJOCO_EGL_DEVICE_ID", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(examination, "ask", ask)
    monkeypatch.setattr(examination, "version", version)
    monkeypatch.setattr(examination.sys, "platform", "linux")
    monkeypatch.setattr(examination.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(examination.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(examination, "_in_container", lambda: False)
    answers["versions"] = versions
    return answers


def finding(report: Report, name: str) -> Finding:
    findings = (each for section in report.sections().values() for each in section)
    return next(each for each in findings if each.name == name)


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
        "8 of 64 cores usable; torch uses 8 threads, OMP_NUM_THREADS is not set",
        "32 GB free of 64 GB",
        "500 GB free in /runs",
        f"{sys.version_info.major}.{sys.version_info.minor}.",
        "needs a screen (DISPLAY); not needed for training",
        'to install: pip install "ray>=2.50',
    ):
        assert words in text
    health = {each.health for section in examine().sections().values() for each in section}
    assert health == {"ok", "not needed"}


def test_each_step_is_reported(answers) -> None:
    steps: list[str] = []
    examine(steps.append)
    assert [text for text in steps if "drawing" in text] == [
        f"drawing with {name}" for name in ("egl", "osmesa", "glfw")
    ]


@pytest.mark.parametrize("gone", [("dm_control",), ("metaworld",)])
def test_one_suite_is_enough(gone: tuple[str, ...], answers) -> None:
    for name in gone:
        del answers["versions"][name]
    report = examine()
    assert report.works and gone[0] not in report.verdict
    assert finding(report, gone[0]).health == "missing"


def test_training_needs_a_suite_and_gymnasium_and_torch(answers) -> None:
    answers["torch"] = {"error": "torch is not installed", "absent": "torch"}
    del answers["versions"]["gymnasium"]
    answers["dm_control"] = {"error": "crashes (SIGSEGV)"}
    report = examine()
    assert not report.works
    assert report.verdict == (
        "training would not work: torch is missing; gymnasium is missing; "
        'to fix it: pip install "torch>=2.5" && pip install "gymnasium>=1.0"'
    )
    assert finding(report, "dm_control").detail == "1.0.28: crashes (SIGSEGV)"
    del answers["versions"]["metaworld"]
    verdict = examine().verdict
    assert "no simulator works (dm_control is broken, metaworld is missing)" in verdict
    assert '"mujoco<4,>=3.3.0"' in verdict.split("to fix it: ")[1]


def test_the_backend_that_training_uses_must_draw(answers, monkeypatch) -> None:
    answers["egl"] = {"error": "hangs: no answer within 120 s"}
    report = examine()
    assert report.verdict == (
        "training would not work: egl cannot draw here; to fix it: export MUJOCO_GL=osmesa"
    )
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    answers["chosen"] = {"backend": "osmesa"}
    report = examine()
    assert report.works and report.verdict.endswith("drawn with osmesa")
    assert "drawing, 84×84 (training uses osmesa, because MUJOCO_GL=osmesa)" in report.sections()
    answers["osmesa"] = {"error": "crashes (SIGABRT)"}
    assert "no OpenGL backend draws; to fix it: sudo apt-get" in examine().verdict


@pytest.mark.parametrize(("word", "canonical"), [("glx", "glfw"), ("nonsense", "nonsense")])
def test_the_words_that_mujoco_knows_for_glfw(word: str, canonical: str, answers) -> None:
    answers["chosen"] = {"backend": word}
    report = examine()
    assert report.chosen == canonical and not report.works
    assert report.verdict.endswith("to fix it: export MUJOCO_GL=egl")


def test_without_libraries_the_line_that_installs_them(answers, monkeypatch) -> None:
    missing = {"error": "the system library is missing or finds no device", "library": False}
    answers |= {"egl": missing, "osmesa": missing, "chosen": {"error": "no OpenGL library"}}
    report = examine()
    assert not report.works
    assert report.verdict == (
        "training would not work: no OpenGL backend draws; "
        "to fix it: sudo apt-get install -y libegl1 libgl1"
    )
    assert "training has no backend" in list(report.sections())[1]
    egl, osmesa = finding(report, "egl"), finding(report, "osmesa")
    assert egl.health == osmesa.health == "missing"
    assert osmesa.fixes[0] == "sudo apt-get install -y libosmesa6 libgl1"
    assert egl.fixes[1].startswith("conda install -c conda-forge")
    monkeypatch.setattr(examination.os, "geteuid", lambda: 0)
    monkeypatch.setattr(examination.shutil, "which", lambda name: None)
    fixes = finding(examine(), "egl").fixes
    assert fixes[0].startswith("conda") and fixes[1].startswith("apt-get")


def test_simulators_are_tried_with_drawing_off_when_nothing_draws(answers, monkeypatch) -> None:
    settings: list[dict[str, str]] = []
    ask = examination.ask

    def watched(question: str, **environment: str) -> dict:
        if question == "dm_control":
            settings.append(environment)
        return ask(question, **environment)

    monkeypatch.setattr(examination, "ask", watched)
    examine()
    answers["egl"] = {"error": "crashes"}
    examine()
    assert settings == [{}, {"MUJOCO_GL": "disable"}]


def test_software_drawing_beside_a_gpu(answers, monkeypatch) -> None:
    answers["machine"]["nvidia"] = "550.54.15"
    answers["torch"] |= {"device": "cuda", "device name": "NVIDIA A100"}
    assert finding(examine(), "egl").health == "ok"
    answers["egl"] = answers["osmesa"]
    report = examine()
    egl = finding(report, "egl")
    assert report.works and egl.health == "warning" and "NVIDIA GPU" in egl.detail
    assert egl.fixes == ("sudo apt-get install -y libnvidia-gl-550",)
    assert finding(report, "osmesa").health == "ok"
    assert finding(report, "torch").detail == "2.13.0, device cuda NVIDIA A100"
    answers["machine"]["nvidia"] = ""  # a GPU whose driver does not tell its version
    assert "libnvidia-gl-<driver version>" in finding(examine(), "egl").fixes[0]
    monkeypatch.setattr(examination, "_in_container", lambda: True)
    assert "NVIDIA_DRIVER_CAPABILITIES=all" in finding(examine(), "egl").fixes[0]
    answers["egl"] = {"error": "no display"}
    assert "NVIDIA_DRIVER_CAPABILITIES=all" in finding(examine(), "egl").fixes[0]


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
    torch = finding(examine(), "torch")
    assert torch.health == state
    assert words in " ".join(torch.fixes) and bool(torch.fixes) == bool(words)


def test_variables_that_stand_in_the_way(answers, monkeypatch) -> None:
    monkeypatch.setenv("PYOPENGL_PLATFORM", "osmesa")
    answers["egl"] = {"error": "Cannot use EGL rendering platform."}
    assert finding(examine(), "egl").fixes == ("unset PYOPENGL_PLATFORM",)
    monkeypatch.delenv("PYOPENGL_PLATFORM")
    monkeypatch.setenv("MUJOCO_EGL_DEVICE_ID", "7")
    assert finding(examine(), "egl").fixes[0] == "unset MUJOCO_EGL_DEVICE_ID"


def test_more_threads_than_cores(answers) -> None:
    answers["machine"]["quota"] = 1.5
    threads = finding(examine(), "threads")
    assert threads.health == "warning" and threads.detail.startswith("2 of 64 cores usable")
    assert threads.fixes == ("export OMP_NUM_THREADS=2",)


def test_little_room_and_a_folder_that_cannot_be_written(answers) -> None:
    answers["machine"] |= {"memory free": 10**9, "disk free": {"/a": 10**9, "/b": 10**12}}
    answers["machine"]["read only"] = ["/b"]
    report = examine()
    assert report.works and finding(report, "memory").health == "warning"
    disks = [each for each in report.machine if each.name == "disk"]
    assert [each.health for each in disks] == ["warning", "warning"]
    assert "too little" in disks[0].detail and "read-only" in disks[1].detail
    answers["machine"] = {"error": "the folder is gone"}
    assert finding(examine(), "machine").detail == "the folder is gone"


def test_versions_that_were_not_tested(answers) -> None:
    answers["versions"] |= {"numpy": "1.26.4", "mujoco": "4.0.0", "ray": "2.49.1"}
    report = examine()
    assert report.works
    numpy, mujoco = finding(report, "numpy"), finding(report, "mujoco")
    assert numpy.health == "warning" and numpy.detail.startswith(
        "1.26.4; revbis is tested with numpy"
    )
    assert numpy.fixes == ('pip install "numpy>=2.0"',)
    assert mujoco.fixes == ('pip install "mujoco<4,>=3.3.0"',)
    assert finding(report, "ray").health == "warning"
    assert finding(report, "gymnasium").health == "ok"


@pytest.mark.parametrize(
    ("other", "version", "wanted"), [("mujoco", "3.17.0", "==3.3.0"), ("numpy", "2.4.0", "<2.4")]
)
def test_current_simulators_are_not_those_of_metaworld(answers, other, version, wanted) -> None:
    answers["versions"] |= {"dm_control": "1.0.50", other: version}
    report = examine()
    assert [finding(report, name).health for name in (other, "dm_control")] == ["ok", "ok"]
    metaworld = finding(report, "metaworld")
    assert metaworld.detail.endswith(f"needs {other}{wanted}, but {other} {version} is installed")
    assert (metaworld.health, metaworld.fixes) == ("warning", (f'pip install "{other}{wanted}"',))


def test_a_package_that_does_not_fit_beside_another(answers, monkeypatch) -> None:
    lines = ['sheeprl==0.8.*; extra == "dreamer"', 'pillow<12; extra == "dreamer"']
    monkeypatch.setattr(plugins, "requires", lambda _: lines)
    absent = examination.examine_package("sheeprl", {})
    assert absent.health == "not needed" and "for the agent dreamerv3 only" in absent.detail
    assert absent.fixes == ('pip install "sheeprl==0.8.*" "pillow<12"',)
    answers["versions"] |= {"sheeprl": "0.8.4", "pillow": "11.3.0"}
    assert examination.examine_package("sheeprl", {}).health == "ok"
    answers["versions"]["pillow"] = "13.0.0"
    found = examination.examine_package("sheeprl", {})
    assert found.detail == "0.8.4: needs pillow<12, but pillow 13.0.0 is installed"
    assert (found.health, found.fixes) == ("warning", ('pip install "pillow<12"',))


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
        ("<2.4", "2.4.0rc1", False),
        (">=2.5", "2.14.0.dev20260101+cpu", True),
        (">=2.5", "built by hand", False),
        ("", "0.0.1", True),
    ],
)
def test_accepts(wanted: str, version: str, fits: bool) -> None:
    assert examination.accepts(SpecifierSet(wanted), version) is fits


def test_every_extra_and_pin_is_in_the_metadata() -> None:
    wanted = {
        name: str(examination.tested(name)) for name in ("dm_control", "numpy", "ray", "nothing")
    }
    assert wanted["dm_control"] == ">=1.0.28" and wanted["ray"] == ">=2.50"
    assert wanted["numpy"] == ">=2.0" and wanted["nothing"] == ""
    text = "\n".join(requires("revbis") or ())
    for name in SIMULATORS:
        assert examination._install(name)[0].startswith('pip install "')
        assert examination.EXTRAS[name] in text
    assert list(examination.EXTRAS) == [*SIMULATORS, "ray", "av", "sheeprl"]


def test_with_nothing_but_the_core(monkeypatch, capsys) -> None:
    """No simulator can be imported, here or in the processes that are asked."""
    absent = (*SIMULATORS, "ray", "av", "OpenGL", "glfw")
    code = f"import sys; sys.modules.update(dict.fromkeys({absent}))\n"
    code += "from revbis.doctor.questions import main; main(sys.argv[1])"
    monkeypatch.setattr(examination, "_command", lambda name: [sys.executable, "-c", code, name])
    real = examination.version

    def version(name: str) -> str:
        if name in absent:
            raise PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(examination, "version", version)
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    code_of_exit, text = run(capsys)
    assert code_of_exit == 1
    last = text.splitlines()[-1]
    assert last.startswith("training would not work: no simulator works")
    assert 'pip install "' in last and '"mujoco<4,>=3.3.0"' in last
    words = [line.split() for line in text.splitlines()]
    for name in SIMULATORS:
        assert ["missing", name, "not", "installed"] in words
    line_of = {
        name: line for line in text.splitlines() for name in ("torch", "egl") if name in line[:22]
    }
    assert line_of["torch"].startswith(("  ok", "  warning"))
    assert line_of["egl"].startswith("  not tried" if backend_loads("egl") else "  missing")


def test_fixes_are_not_broken_over_lines(answers, capsys, monkeypatch) -> None:
    for name in SIMULATORS:
        del answers["versions"][name]
    answers["machine"]["disk free"] = {"/a folder " * 30: 10**12}
    code, text = run(capsys)
    lines = text.splitlines()
    verdict = examine().verdict
    assert code == 1 and lines[-1] == verdict and len(verdict) > 140
    wrapped = [line for line in lines if "a folder" in line]
    assert len(wrapped) > 1 and all(len(line) <= 140 for line in wrapped)


def test_a_report_without_parts_does_not_work() -> None:
    report = Report((), (), (), "")
    assert not report.works and "to fix it" not in report.verdict
    assert replace(Finding("a", "ok", ""), health="broken").works is False
