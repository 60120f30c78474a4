"""tools/install-chromium, with every program that would change the machine replaced."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "install-chromium"
PACKAGES = "chromium chromium-driver"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="installs with apt-get")


class Machine:
    """A PATH on which only a few real programs and our own are."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.log = folder / "bin", folder / "log"
        self.bin.mkdir()
        for name in ("bash", "env", "cat", "rm", "mktemp", "touch", "chmod", "true"):
            (self.bin / name).symlink_to(str(shutil.which(name)))
        self.program("uname", "echo Linux")
        self.program("id", "echo 0")
        self.apt_get("true")

    def program(self, name: str, code: str) -> None:
        path = self.bin / name
        path.write_text(f"#!{self.bin}/bash\n{code}\n")
        path.chmod(0o755)

    def apt_get(self, works: str) -> None:
        """Installing puts the programs there, if `works` does."""
        made = " ".join(str(self.bin / name) for name in ("chromium", "chromedriver"))
        self.program(
            "apt-get",
            f'echo "$*" >>{self.log}; echo chatter\n'
            f'case "$*" in *update*) exit 0;; esac\n'
            f"{works} || {{ echo 'E: sorry' >&2; exit 100; }}\n"
            f"touch {made}; chmod +x {made}",
        )

    def run(self) -> tuple[str, list[str]]:
        """What the script says, and the installing that it does."""
        done = subprocess.run(
            [str(self.bin / "bash"), str(SCRIPT)],
            env={"PATH": str(self.bin)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done
        calls = self.log.read_text().splitlines() if self.log.exists() else []
        return done.stdout + done.stderr, calls


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_root_installs_once(machine: Machine) -> None:
    output, done = machine.run()
    assert len(done) == 1 and done[0].endswith(f"install --no-install-recommends {PACKAGES}")
    assert "chatter" not in output and len(output.splitlines()) == 1
    assert machine.run() == ("", done)  # the second time all is there


def test_a_failure_is_shown_and_does_not_fail(machine: Machine) -> None:
    machine.apt_get("false")
    output, done = machine.run()
    assert ["update" in line for line in done] == [False, True, False]
    assert "E: sorry" in output and output.strip().endswith(f"apt-get install -y {PACKAGES}")


def test_a_user_who_may_not_is_told_the_line(machine: Machine) -> None:
    machine.program("id", "echo 1000")
    output, done = machine.run()
    assert done == [] and output.strip().endswith(f"sudo apt-get install -y {PACKAGES}")


def test_other_systems_are_left_alone(machine: Machine) -> None:
    machine.program("uname", "echo Darwin")
    assert machine.run() == ("", [])
