"""What is exported acts and embeds as the run's own agent does, to the last bit."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.cli import fails
from tests.export import trained

import revbis
from revbis import agents
from revbis.agents.registry import agents as all_agents
from revbis.cli import main
from revbis.envs import make_env
from revbis.export import TrainedAgent, load, write_export
from revbis.export.agent import inference_state
from revbis.io.files import digest
from revbis.objectives import OBJECTIVES
from revbis.runs.config import Config
from revbis.runs.run import open_run

torch.set_num_threads(1)
pytestmark = pytest.mark.env("gym", gl=False)
CASES = [
    ("drqv2", {"observation": "state"}),
    ("drqv2", {}),
    ("simsr-rev-full", {"encoder_norm": True}),
    ("simsr-rev", {"mode": "decoupled"}),
    ("mico", {"observation": "state", "normalisation": True}),
    ("taco", {}),
    ("taco", {"taco_loss": False, "curl_loss": False, "reward_loss": False}),
    ("tdmpc", {"observation": "state"}),
    ("tdmpc", {"pixels": 40}),
    ("mrq", {"observation": "state"}),
    ("mrq", {"pixels": 40}),
    ("mrq", {"observation": "state", "representation": ("model", "simsr-rev-full")}),
]


def observations(config: Config, count: int) -> np.ndarray:
    """Those of one episode with random actions."""
    env = make_env(**config.environment, seed=3)
    generator = np.random.default_rng(0)
    seen = [env.reset(seed=3)[0]]
    while len(seen) < count:
        seen.append(env.step(generator.uniform(-1, 1, 1).astype(np.float32))[0])
    return np.stack(seen)


def played(act, begin, seen: np.ndarray) -> np.ndarray:
    """The actions of two episodes with these observations."""
    actions = []
    for _ in range(2):
        begin()
        actions.append([act(observation) for observation in seen])
    return np.array(actions)


@pytest.mark.parametrize(("method", "settings"), CASES)
def test_acts_and_embeds_as_the_run_does(method, settings, tmp_path: Path) -> None:
    config = trained(tmp_path / "runs", method, **settings)
    write_export(config.directory, tmp_path / "export", trust=True)
    agent, own = revbis.load(tmp_path / "export"), open_run(config.directory, trust=True).agent
    seen = observations(config, 6)
    wanted = played(lambda o: own.act(o, 0, explore=False), own.begin_episode, seen)
    assert np.array_equal(played(agent.act, agent.begin_episode, seen), wanted)
    assert np.array_equal(wanted[0], wanted[1])
    fresh = load(tmp_path / "export")  # its first episode needs no begin_episode
    assert np.array_equal([fresh.act(observation) for observation in seen], wanted[0])
    z = own.embed(torch.from_numpy(seen))
    assert np.array_equal(agent.embed(seen), z.numpy()) and len(np.unique(z)) > 6
    assert np.array_equal(agent.distance(agent.embed(seen), agent.embed(seen)), own.distance(z, z))
    assert agent.frames == 160 and agent.environment == config.environment


@pytest.mark.parametrize("method", [*OBJECTIVES, "drqv2", "taco", "tdmpc", "mrq"])
def test_every_method_acts_and_embeds_with_what_it_exports(method: str) -> None:
    """An agent of another seed does the same once it has the tensors and the numbers."""
    small = {"latent_dim": 6, "hidden": 16}
    settings = agents.resolve(method).settings(**small)
    first, second = (agents.make_agent(method, settings, (5,), 2, seed=seed) for seed in (1, 2))
    seen = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    assert not torch.equal(first.embed(seen), second.embed(seen))
    source, target = inference_state(method, first), inference_state(method, second)
    assert source.tensors.keys() == target.tensors.keys()
    for name, tensor in target.tensors.items():
        tensor.copy_(source.tensors[name])
    target.restore(source.numbers)
    assert torch.equal(first.embed(seen), second.embed(seen))
    if method != "tdmpc":  # its planner also draws from the seed
        assert np.array_equal(*(a.act(seen[0].numpy(), 0, explore=False) for a in (first, second)))


def test_holds_what_acting_and_embedding_need_and_no_more(tmp_path: Path) -> None:
    config = trained(tmp_path / "runs", "simsr-rev-full", observation="state")
    write_export(config.directory, tmp_path / "export", trust=True)
    tensors = load_file(tmp_path / "export" / "weights.safetensors")
    assert {name.split(".")[0] for name in tensors} == {"encoder", "policy", "actor", "projection"}
    assert sorted(path.name for path in (tmp_path / "export").iterdir()) == [
        "README.md",
        "agent.json",
        "weights.safetensors",
    ]
    text = "".join((tmp_path / "export" / name).read_text() for name in ("README.md", "agent.json"))
    assert str(tmp_path) not in text  # nothing of where it was trained


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return trained(tmp_path_factory.mktemp("run"), "mico-rev", observation="state", state_noise=2)


@pytest.fixture
def agent(run: Config, tmp_path: Path) -> TrainedAgent:
    write_export(run.directory, tmp_path / "export", trust=True)
    return load(tmp_path / "export")


@pytest.mark.parametrize(
    ("method", "observation", "message"),
    [
        ("act", [0.0] * 4, "must be a NumPy array of float32 of shape (4,), got [0.0, 0.0"),
        ("act", np.zeros(4), "must be a NumPy array of float32 of shape (4,), got float64"),
        ("act", np.zeros(3, np.float32), "of shape (4,), got float32 of shape (3,)"),
        ("act", np.full(4, np.nan, np.float32), "observation must be finite"),
        ("embed", np.zeros(4, np.float32), "of shape (4, 4), got float32 of shape (4,)"),
        ("embed", np.zeros((0, 4), np.float32), "of shape (1, 4), got float32 of shape (0, 4)"),
        ("embed", torch.zeros(2, 4), "must be a NumPy array"),
        ("embed", np.full((2, 4), np.inf, np.float32), "observations must be finite"),
    ],
)
def test_wrong_observations(agent: TrainedAgent, method, observation, message: str) -> None:
    with pytest.raises(ValueError) as error:
        getattr(agent, method)(observation)
    assert message in str(error.value)


def test_the_command_and_its_card(run: Config, tmp_path: Path, capsys, monkeypatch) -> None:
    main(["export", "--trust", str(run.directory)])
    folder = run.directory / "export"
    assert capsys.readouterr().out == f"written to {folder}\n"
    card = (folder / "README.md").read_text()
    last = json.loads((run.directory / "eval.jsonl").read_text().splitlines()[-1])
    for text in (
        "# mico-rev on tests.runs:Walk",
        f"| mean return, variants of evaluation | {last['mean_return']:.1f} over 1 episode at ",
        f"| mean return, variants of training | {last['train_mean_return']:.1f} over 1 episode at ",
        "for 160 frames",
        "revbis train --task tests.runs:Walk --method mico-rev --preset cpu --seed 1",
        'revbis.load("export")',
        "Licence: MIT",
    ):
        assert text in card
    monkeypatch.chdir(run.directory)
    namespace: dict = {}
    exec(card.split("```python\n")[1].split("```")[0], namespace)
    assert namespace["action"].shape == (1,) and namespace["embedding"].shape[0] == 1


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["export", "--help"])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    assert "--out" in printed and "revbis.load(FOLDER)" in printed


def test_replaces_an_export_and_nothing_else(run: Config, tmp_path: Path, capsys) -> None:
    out = tmp_path / "out"
    out.mkdir()  # an empty folder is nobody's
    for _ in range(2):
        main(["export", "--trust", str(run.directory), "--out", str(out)])
        load(out)
    (out / "notes.txt").write_text("mine")
    words = ("export", "--trust", str(run.directory), "--out")
    assert "has other files in it ('notes.txt')" in fails(capsys, *words, str(out))
    (out / "notes.txt").unlink()
    (out / "agent.json").write_text("{}")
    assert "it is not replaced" in fails(capsys, *words, str(out))
    (out / "agent.json").unlink()
    assert "is not an export: it has no agent.json" in fails(capsys, *words, str(out))
    assert "is a file" in fails(capsys, *words, str(out / "README.md"))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_failure_leaves_what_was_there(run: Config, tmp_path: Path, monkeypatch) -> None:
    out = tmp_path / "out"
    write_export(run.directory, out, trust=True)
    before = digest(out / "agent.json")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for step in ("load", "card"):
        with monkeypatch.context() as patch:
            patch.setattr(f"revbis.export.writer.{step}", full)
            with pytest.raises(OSError, match="No space left on device") as error:
                write_export(run.directory, out, trust=True)
            assert error.value.filename == str(out)
            with pytest.raises(OSError, match="No space left on device"):
                write_export(run.directory, tmp_path / "new" / "out", trust=True)
    assert digest(out / "agent.json") == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_can_be_exported() -> None:
    names = [entry.name for entry in all_agents() if entry.acting is None]
    assert names == ["dreamerv3", "agent:package.module:factory"]


@pytest.mark.parametrize(
    ("method", "why"),
    [
        ("dreamerv3", "its networks are those of sheeprl"),
        ("agent:some.where:agent", "it is code of your own (some.where:agent)"),
        ("some.where:objective", "it is code of your own (some.where:objective)"),
    ],
)
def test_what_cannot_be_exported_says_why(method: str, why: str, tmp_path: Path, capsys) -> None:
    config = {"task": "tests.runs:Walk", "method": method, "preset": "cpu"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    error = fails(capsys, "export", str(tmp_path))
    assert f"{method} cannot be exported: {why}" in error and len(error.splitlines()) == 1


def test_a_folder_that_is_no_run(tmp_path: Path, capsys) -> None:
    assert f"{tmp_path} is not a run" in fails(capsys, "export", str(tmp_path))
