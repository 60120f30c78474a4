"""The distribution: the wheel has every file of the package, the version is written once."""

import re
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

import revbis

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "revbis"
BACKEND = "import sys; from hatchling.build import {0}; print({0}(sys.argv[1]))"


def built(what: str, folder: Path) -> Path:
    """A file that `make dist` makes, by the backend alone, which takes a second."""
    if find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed; make test installs it")
    command = [sys.executable, "-c", BACKEND.format(f"build_{what}"), str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return zipfile.ZipFile(built("wheel", tmp_path_factory.mktemp("wheel")))


def test_the_sdist_has_the_tables_of_results_and_no_archive(tmp_path: Path) -> None:
    with tarfile.open(built("sdist", tmp_path)) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert not any(name.endswith(".zip") for name in names)
    kept = {path for path in (ROOT / "results").rglob("*.*") if path.is_file()}
    files = {str(path.relative_to(ROOT)) for path in kept if path.suffix not in (".zip", ".pyc")}
    assert {"results/pack.py", "results/noisy-state/evaluations.csv"} <= files <= names


def test_the_wheel_has_every_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    files = [path for path in SOURCE.rglob("*") if path.is_file()]
    wanted = {
        f"revbis/{path.relative_to(SOURCE).as_posix()}": path.read_bytes()
        for path in files
        if "__pycache__" not in path.parts
    }
    packed = {name: wheel.read(name) for name in wheel.namelist() if name.startswith("revbis/")}
    assert packed.keys() == wanted.keys()
    assert packed == wanted
    for ending in ("py.typed", "paper_table1.csv", "grids/table1.yaml", "page.html", "page.css"):
        assert any(name.endswith(ending) for name in packed)


def test_the_metadata_of_the_wheel(wheel: zipfile.ZipFile) -> None:
    (folder,) = {name.split("/")[0] for name in wheel.namelist()} - {"revbis"}
    assert folder == f"revbis-{revbis.__version__}.dist-info"
    assert "revbis = revbis.cli:main" in wheel.read(f"{folder}/entry_points.txt").decode()
    metadata = wheel.read(f"{folder}/METADATA").decode()
    assert "License-Expression: MIT" in metadata and "# revbis" in metadata
    assert f"{folder}/licenses/LICENSE" in wheel.namelist()


def test_the_version_of_the_changelog_and_the_citation() -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)
    assert newest is not None and newest[1] == revbis.__version__
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(citation["version"]) == revbis.__version__
    assert citation["license"] == "MIT" and citation["cff-version"] == "1.2.0"


def test_the_image_is_built_from_files_that_its_context_has() -> None:
    """What the Dockerfile copies exists, is not ignored, and includes what the backend reads."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copies = [
        line.split()[1:-1] for line in lines if line.startswith("COPY") and "--from" not in line
    ]
    names = {name for copy in copies for name in copy}
    kept = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), flags=re.M)
    assert (
        names == set(kept) == {"constraints.txt", "pyproject.toml", "README.md", "LICENSE", "src"}
    )
    assert all((ROOT / name).exists() for name in names)


def test_what_is_installed_is_pinned() -> None:
    """Every direct requirement has a version in constraints.txt, but for the dreamer extra."""
    import tomllib

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {k: v for k, v in project["optional-dependencies"].items() if k != "dreamer"}
    wanted = [
        Requirement(line) for lines in (project["dependencies"], *extras.values()) for line in lines
    ]
    pins = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().split("\n")[1:-1]
    )
    versions = {canonicalize_name(name): version for name, version in pins.items()}
    for each in wanted:
        assert each.specifier.contains(versions[canonicalize_name(each.name)]), each
