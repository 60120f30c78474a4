"""An export whose files were changed, cut or forged: one clear line, and no code runs."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.export import trained

from revbis.export import load, write_export
from revbis.io.files import digest

torch.set_num_threads(1)
pytestmark = pytest.mark.env("gym", gl=False)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    config = trained(folder / "runs", "tdmpc", observation="state")
    write_export(config.directory, folder / "agent", trust=True)
    return folder / "agent"


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "agent"))


def settings(folder: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((folder / "agent.json").read_text())
    return values


def rewrite(folder: Path, **values: Any) -> None:
    (folder / "agent.json").write_text(json.dumps(settings(folder) | values))


def reweigh(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    """Changes the weights, with their checksum: what a forger would do."""
    path = folder / "weights.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)
    rewrite(folder, weights={"bytes": path.stat().st_size, "digest": digest(path)})


def refused(folder: Path) -> str:
    with pytest.raises(ValueError) as error:
        load(folder)
    assert str(folder) in str(error.value) and "\n" not in str(error.value)
    return str(error.value)


def test_the_copy_loads(folder: Path) -> None:
    assert load(str(folder)).frames == 160


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("agent.json", None, "is not an export: it has no agent.json"),
        ("agent.json", b"", "is not from revbis export: it is not JSON"),
        ("agent.json", b"[" * 10_000, "is not from revbis export: it is nested too deeply"),
        ("agent.json", b"{}", "its format must be 'revbis export 1', got None"),
        ("agent.json", b" " * 2_000_000, "is larger than any agent.json"),
        ("weights.safetensors", None, "is incomplete: it has no weights.safetensors"),
        ("weights.safetensors", b"", "bytes, got 0: it is truncated or of another export"),
    ],
)
def test_missing_and_foreign_files(name, content, message: str, folder: Path) -> None:
    path = folder / name
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert message in refused(folder)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert "is not an export" in refused(tmp_path / "none")


def test_a_byte_that_has_changed(folder: Path) -> None:
    path = folder / "weights.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    assert "has changed since it was exported" in refused(folder)


@pytest.mark.parametrize("content", [b"PK\3\4" + b"\0" * 96, b"\xff" * 100, b"\0" * 100])
def test_weights_that_are_no_tensors(content: bytes, folder: Path) -> None:
    path = folder / "weights.safetensors"
    path.write_bytes(content)
    rewrite(folder, weights={"bytes": len(content), "digest": digest(path)})
    assert "cannot be read" in refused(folder)


def set_nan(tensors: dict[str, torch.Tensor]) -> None:
    tensors["model.actor.last.bias"][0] = float("nan")


WIDE = {"model.actor.last.bias": torch.zeros(7)}
DOUBLE = {"model.actor.last.bias": torch.zeros(1, dtype=torch.float64)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_nan, "model.actor.last.bias must be finite"),
        (lambda t: t.pop("model.encoder.first.weight"), "it has no model.encoder.first.weight"),
        (lambda t: t.update({"x\ny": torch.zeros(1)}), r"'x\ny' is not of this agent"),
        (lambda t: t.update(WIDE), "model.actor.last.bias must be [1], got [7]"),
        (lambda t: t.update(DOUBLE), "model.actor.last.bias must be float32, got float64"),
    ],
)
def test_weights_that_do_not_fit(change, message: str, folder: Path) -> None:
    reweigh(folder, change)
    assert message in refused(folder)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"action_size": 3}, "does not fit agent.json: model.actor.last.bias must be [3], got [1]"),
        ({"observation_shape": [3]}, "does not fit agent.json"),
        ({"observation_shape": [3, 24, 24]}, "its observation_shape must be (3,), got (3, 24, 24)"),
        ({"numbers": {}}, "its numbers must be ['discount', 'step'], got []"),
        ({"numbers": {"step": 1, "discount": 2}}, "discount must be in [0, 1), got 2"),
        ({"weights": {"bytes": -1, "digest": ""}}, "must be at least 0, got -1"),
        ({"config": {}}, "its method must be a name, got None"),
    ],
)
def test_settings_that_are_wrong(values: dict[str, Any], message: str, folder: Path) -> None:
    rewrite(folder, **values)
    assert message in refused(folder)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"method": "drqv2"}, "the config: unknown"),
        ({"method": "dreamerv3"}, "dreamerv3 cannot be exported"),
        ({"method": "nothing"}, "method must be one of"),
        ({"method": ["tdmpc"]}, "its method must be a name"),
        ({"hidden": 65_536}, "its hidden is 65,536, but no layer of the weights is as wide"),
        ({"hidden": 17}, "does not fit agent.json"),
    ],
)
def test_a_config_that_is_wrong(values: dict[str, Any], message: str, folder: Path) -> None:
    rewrite(folder, config=settings(folder)["config"] | values)
    assert message in refused(folder)


def test_no_code_is_executed(folder: Path) -> None:
    """Neither modules that lie in the folder nor what the settings name."""
    for name in ("evil", "safetensors", "torch"):
        (folder / f"{name}.py").write_text("print('executed')\nraise SystemExit(3)\n")
    code = (
        "import json, os, sys; import revbis.export; os.chdir(sys.argv[1]); before = [*sys.path]\n"
        "print(revbis.export.load('.').frames)\n"
        "values = json.load(open('agent.json'))\n"
        "for method in ('agent:evil:make', 'evil:make'):\n"
        "    values['config']['method'] = method\n"
        "    json.dump(values, open('agent.json', 'w'))\n"
        "    try:\n        revbis.export.load('.')\n"
        "    except ValueError as error:\n        print(error)\n"
        "assert sys.path == before"
    )
    command = [sys.executable, "-P", "-c", code, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    frames, *errors = done.stdout.splitlines()
    assert frames == "160" and len(errors) == 2 and "executed" not in done.stdout
    assert all("cannot be exported: it is code of your own" in error for error in errors)


def test_a_card_may_be_rewritten(folder: Path) -> None:
    (folder / "README.md").unlink()
    assert load(folder).action_size == 1
