"""tools/install-*, with every program that would change the machine replaced by a recorder."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[1] / "tools"
ALL = "libegl1 libgl1 libosmesa6"
BROWSER = "chromium chromium-driver"
LINE = "apt-get install -y {}"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="installs with apt-get")


class Machine:
    """A PATH on which only a few real programs and our recorders are."""

    def __init__(self, folder: Path, script: str) -> None:
        self.script = TOOLS / script
        self.bin, self.log, self.state = folder / "bin", folder / "log", folder / "state"
        self.bin.mkdir()
        self.state.mkdir()
        for name in ("bash", "env", "grep", "cat", "rm", "mktemp", "touch", "chmod", "true"):
            (self.bin / name).symlink_to(str(shutil.which(name)))
        self.program("uname", "echo Linux")
        self.program("id", "echo 0")
        self.program("ldconfig", f"cat {self.state}/libraries 2>/dev/null")
        self.libraries()
        self.packages(*ALL.split())
        self.apt_get()

    def program(self, name: str, code: str) -> None:
        path = self.bin / name
        path.write_text(f"#!{self.bin}/bash\n{code}\n")
        path.chmod(0o755)

    def libraries(self, *names: str) -> None:
        lines = [f"\t{name} (libc6,x86-64) => /lib/{name}\n" for name in names]
        (self.state / "libraries").write_text("".join(lines))

    def packages(self, *names: str, after_update: bool = False) -> None:
        """The packages that the release has; with `after_update` only once lists are fetched."""
        known = f"[ -e {self.state}/updated ] || exit 0;" if after_update else ""
        code = f'{known} case " {" ".join(names)} " in *" $2 "*) echo "  Candidate: 1.6";;'
        self.program("apt-cache", code + ' *) echo "  Candidate: (none)";; esac')

    def apt_get(self, install: str = "true") -> None:
        """`install` is what installing does before libraries and programs are there."""
        made = " ".join(str(self.bin / name) for name in ("chromium", "chromedriver"))
        found = r"\tlibEGL.so.1 (libc6) => /lib/libEGL.so.1\n\tlibGL.so.1 (libc6) => /x\n"
        self.program(
            "apt-get",
            f'echo "$DEBIAN_FRONTEND apt-get $*" >>{self.log}; echo chatter\n'
            f'case "$*" in *update*) touch {self.state}/updated; exit 0;; esac\n'
            f"{install} || {{ echo 'E: sorry' >&2; exit 100; }}\n"
            f"printf '{found}' >{self.state}/libraries; touch {made}; chmod +x {made}",
        )

    def run(self, **environment: str) -> tuple[str, list[str]]:
        """What the script says, and the installing that it does."""
        done = subprocess.run(
            [str(self.bin / "bash"), str(self.script)],
            env={"PATH": str(self.bin), **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done
        return done.stdout + done.stderr, self.done()

    def done(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, "install-gl")


@pytest.fixture
def without_browser(tmp_path: Path) -> Machine:
    return Machine(tmp_path, "install-chromium")


@pytest.mark.parametrize(
    "libraries", [("libEGL.so.1", "libGL.so.1"), ("libOSMesa.so.8", "libGL.so.1")]
)
def test_does_nothing_where_all_is_there(libraries: tuple[str, str], machine) -> None:
    machine.libraries(*libraries)
    assert machine.run() == ("", [])


def test_libraries_of_conda_and_of_the_user_count(machine, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    for name in ("libEGL.so.1", "libGL.so.1.7.0"):
        (tmp_path / "lib" / name).touch()
    assert machine.run(CONDA_PREFIX=str(tmp_path)) == ("", [])
    assert machine.run(LD_LIBRARY_PATH=f"/nowhere:{tmp_path}/lib") == ("", [])


@pytest.mark.parametrize("script", ["install-gl", "install-chromium"])
def test_other_systems_are_left_alone(script: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path, script)
    machine.program("uname", "echo Darwin")
    assert machine.run() == ("", [])


@pytest.mark.parametrize(
    "libraries", [(), ("libEGL.so.1",), ("libGL.so.1",), ("libEGL_mesa.so.0", "libGL.so.1")]
)
def test_root_installs(libraries: tuple[str, ...], machine) -> None:
    machine.libraries(*libraries)
    said, done = machine.run()
    assert len(done) == 1 and done[0].startswith("noninteractive apt-get ")
    assert done[0].endswith(f"install --no-install-recommends {ALL}")
    assert "chatter" not in said and len(said.splitlines()) == 1
    assert machine.run()[1] == done  # the second time all is there


def test_a_package_that_the_release_has_dropped(machine) -> None:
    machine.packages("libegl1", "libgl1")
    assert machine.run()[1][0].endswith("--no-install-recommends libegl1 libgl1")


def test_missing_lists_are_fetched_first(machine) -> None:
    machine.packages(*ALL.split(), after_update=True)
    said, done = machine.run()
    assert done[0].endswith("update") and done[1].endswith(ALL) and len(done) == 2
    assert "chatter" not in said


def test_stale_lists_are_fetched_and_it_is_tried_again(machine) -> None:
    machine.apt_get(install=f"[ -e {machine.state}/updated ]")
    said, done = machine.run()
    assert ["update" in line for line in done] == [False, True, False]
    assert "sorry" not in said


def test_a_failure_is_shown_with_the_line_to_run_and_does_not_fail(machine) -> None:
    machine.apt_get(install="false")
    said, _ = machine.run()
    assert "E: sorry" in said
    assert said.splitlines()[-1].endswith(LINE.format(ALL)) and "sudo" not in said


def test_a_user_with_passwordless_sudo(machine) -> None:
    machine.program("id", "echo 1000")
    strip = "unset DEBIAN_FRONTEND"  # as sudo does
    machine.program("sudo", f'[ "$1" = -n ] || exit 1; shift; {strip}; exec "$@"')
    _, done = machine.run()
    assert len(done) == 1 and done[0].startswith("noninteractive") and done[0].endswith(ALL)


@pytest.mark.parametrize("has_sudo", [True, False])
def test_a_user_who_may_not_is_told_the_line(has_sudo: bool, machine) -> None:
    machine.program("id", "echo 1000")
    if has_sudo:
        machine.program("sudo", "echo 'sudo: a password is required' >&2; exit 1")
    machine.packages("libegl1", "libgl1")
    said, done = machine.run()
    assert done == [] and len(said.splitlines()) == 1
    assert said.strip().endswith("sudo " + LINE.format("libegl1 libgl1"))


def test_without_apt_get_conda_is_named(machine) -> None:
    (machine.bin / "apt-get").unlink()
    said, done = machine.run()
    assert done == [] and "conda install -c conda-forge libegl" in said


def test_root_installs_a_browser_once(without_browser) -> None:
    said, done = without_browser.run()
    assert len(done) == 1 and done[0].endswith(f"install --no-install-recommends {BROWSER}")
    assert "chatter" not in said and len(said.splitlines()) == 1
    assert without_browser.run() == ("", done)  # the second time all is there


def test_a_browser_that_cannot_be_installed_is_no_failure(without_browser) -> None:
    without_browser.apt_get(install="false")
    said, done = without_browser.run()
    assert ["update" in line for line in done] == [False, True, False]
    assert "E: sorry" in said and said.strip().endswith(LINE.format(BROWSER))
    without_browser.log.unlink()
    without_browser.program("id", "echo 1000")
    said, done = without_browser.run()
    assert done == [] and said.strip().endswith("sudo " + LINE.format(BROWSER))
