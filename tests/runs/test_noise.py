"""Runs with noise on their pixels or in their state vectors: resume, records, videos."""

import json

import pytest
from tests.agents.tdmpc import assert_same_state
from tests.cli import fails
from tests.runs import evaluations, flags, networks, stop_after, tiny_config

from revbis.cli import main
from revbis.envs.distractors import PixelNoise
from revbis.envs.state_noise import StateNoise
from revbis.runs.config import Config
from revbis.runs.run import train

WALK = {"task": "tests.runs:Walk", "frames": 800}
PIXELS = {**WALK, "distractor": "gaussian", "distractor_strength": 0.3}
VECTOR = {**WALK, "observation": "state", "quality": "full", "state_noise": 6}


MIXED = VECTOR | {"state_noise_kind": "instance+shadow", "reward_gate": True}


@pytest.mark.parametrize("noise", [PIXELS, VECTOR, VECTOR | {"state_noise_kind": "walk"}, MIXED])
def test_a_run_resumes_exactly_in_the_middle_of_an_episode(noise, tmp_path, caplog):
    whole, parts = (tiny_config(tmp_path / name, **noise) for name in ("whole", "parts"))
    assert train(whole)
    assert not train(parts, **stop_after(63))  # an episode has five agent steps
    assert train(parts)
    assert "resumed at frame 504" in caplog.text and "truncated" not in caplog.text
    assert evaluations(parts) == evaluations(whole)
    assert_same_state(networks(parts), networks(whole))


@pytest.mark.parametrize(
    ("noise", "changes"),
    [
        (PIXELS, ({"distractor_strength": 0.9},)),
        (VECTOR, ({"state_noise": 7}, {"state_noise_kind": "walk"})),
    ],
)
def test_the_noise_changes_what_is_learned(noise, changes, tmp_path):
    returns = []
    for number, change in enumerate(({}, *changes)):
        config = tiny_config(tmp_path / str(number), **noise | change)
        assert train(config)
        assert Config.read(config.directory / "config.json") == config
        returns.append(evaluations(config)[-1]["returns"][0])
    assert len(set(returns)) == len(returns)


@pytest.mark.parametrize(
    ("noise", "recorded", "command", "change", "refusal"),
    [
        (
            PIXELS,
            {"distractor": "gaussian-v1(0.3)/train"},
            "--distractor gaussian --distractor-strength 0.3",
            {"distractor_strength": 0.4},
            "--distractor-strength was 0.3, now 0.4",
        ),
        (
            MIXED,
            {"state_noise": "instance+shadow-v1(6)/train", "reward_gate": "gate-v1/train"},
            "--state-noise 6 --state-noise-kind instance+shadow --reward-gate",
            {"reward_gate": False},
            "--reward-gate was ",
        ),
        (
            VECTOR,
            {"state_noise": "gaussian-v1(6)/train"},
            "--state-noise 6",
            {"state_noise": 7},
            "--state-noise was 6, now 7",
        ),
    ],
)
def test_a_run_records_its_noise_and_cannot_change_it(
    noise, recorded, command, change, refusal, tmp_path, capsys
):
    config = tiny_config(tmp_path, **noise)
    assert not train(config, **stop_after(20))
    assert Config.read(config.directory / "config.json") == config
    about = json.loads((config.directory / "run.json").read_text())
    assert about["environment"].items() >= recorded.items()
    assert command in about["command"]
    assert refusal in fails(capsys, "train", *flags(config.with_settings(**change)))


@pytest.mark.parametrize(
    ("noise", "kind", "name"),
    [(PIXELS, PixelNoise, "gaussian-v1(0.3)"), (VECTOR, StateNoise, "gaussian-v1(6)")],
)
def test_it_is_evaluated_on_the_evaluation_variants(noise, kind, name, tmp_path, monkeypatch):
    seen = set()
    reset = kind.reset

    def recorded(noise, seed):
        reset(noise, seed)
        seen.add((noise.identity, getattr(noise, "variant", None) in range(60)))

    monkeypatch.setattr(kind, "reset", recorded)
    config = tiny_config(tmp_path, **noise | {"frames": 400})
    assert train(config)
    of_training = kind is StateNoise  # the noise of pixels has no variants, but numbers of its own
    assert seen == {(f"{name}/train", of_training), (f"{name}/eval", False)}
    seen.clear()
    main(["eval", "--trust", str(config.directory), "--episodes", "2"])
    assert seen == {(f"{name}/eval", False)}


def test_a_video_shows_the_task_without_the_numbers(tmp_path):
    pytest.importorskip("av")
    config = tiny_config(tmp_path, **MIXED | {"frames": 400})
    assert train(config)
    video = tmp_path / "episode.mp4"
    main(["eval", "--trust", str(config.directory), "--episodes", "1", "--video", str(video)])
    assert video.stat().st_size > 0
