"""What is refused before a run starts, and what is left to the machine that makes it."""

import pytest
from tests.runs import tiny_config

from revbis.io import machine
from revbis.runs import preflight
from revbis.runs.config import Config
from revbis.runs.preflight import UnfitMachineError, check, check_unchanged


@pytest.fixture
def config(tmp_path) -> Config:
    return tiny_config(tmp_path, task="tests.runs:Walk", quality="full")


def test_a_run_that_can_be_made_passes(config):
    check(config)
    check(config, here=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frames": 80}, "explore-steps 10 x --action-repeat 8 = 80 frames .* --frames is 80"),
        ({"device": "gpu"}, "device must be auto, cpu, mps, cuda or cuda:N, got 'gpu'"),
        ({"device": "cuda:x"}, "device must be"),
        ({"task": "dmc:chetah_run"}, "did you mean dmc:cheetah_run"),
        ({"task": "walker_run"}, "a task must be"),
        ({"distractor": "noise"}, "drop distractor"),
        ({"distractor": "gaussian"}, "gaussian needs a distractor_strength: .* such as 0.2"),
        ({"distractor_strength": 0.2}, "is for the distractor gaussian, .* is None; drop"),
        (
            {"task": "dmc:cheetah_run", "distractor": "noise", "distractor_strength": 0.2},
            "is for the distractor gaussian, but the distractor is noise; drop",
        ),
        ({"quality": "fast"}, "set quality to full"),
        ({"task": "dmc:cheetah_run", "distractor": "nois"}, "did you mean 'noise'"),
        ({"observation": "state", "distractor": "noise"}, "distractors require observation pixels"),
        ({"state_noise": 4}, "state_noise requires observation state"),
        ({"shift": 24}, "shift must be less than the image's side 24, got 24"),
        ({"strides": (3, 3, 3, 3)}, "too small for four convolutions"),
        ({"replay_capacity": 6}, r"stack \+ n_step \+ 1 = 7 .* got 6; use a larger"),
        ({"replay_capacity": 4, "observation": "state"}, "= 5 .* got 4"),
    ],
)
@pytest.mark.parametrize("here", [True, False])
def test_what_no_machine_can_run_is_refused(config, changes, message, here):
    with pytest.raises(ValueError, match=message) as caught:
        check(config.with_settings(**changes), here=here)
    assert not isinstance(caught.value, UnfitMachineError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("distractor", ["noise", "shapes", "instance"])
def test_a_moving_background_passes(config, distractor):
    check(config.with_settings(task="dmc:cheetah_run", distractor=distractor))


def test_bfloat16_is_left_to_a_machine_that_has_it(config, monkeypatch):
    half = config.with_settings(device="cpu", precision="bfloat16")
    monkeypatch.setattr(machine, "bfloat16_units", lambda: "")
    check(half, here=False)
    with pytest.raises(UnfitMachineError, match=r"no instructions .* use precision float32"):
        check(half)
    monkeypatch.setattr(machine, "bfloat16_units", lambda: "amx_bf16")
    check(half)


def test_the_limits_themselves_pass(config):
    check(config.with_settings(frames=81))
    check(config.with_settings(replay_capacity=7))
    check(config.with_settings(replay_capacity=5, observation="state"))
    check(config.with_settings(strides=(3, 3, 1, 1), pixels=52))
    check(config.with_settings(distractor="gaussian", distractor_strength=0.001))


def test_strides_agree_with_the_encoder():
    """The encoder's own probe is the judge."""
    from revbis.agents.drqv2 import PixelEncoder
    from revbis.agents.settings import feature_sides

    def fits(check_it):
        try:
            check_it()
        except ValueError:
            return False
        return True

    for pixels in range(8, 40):
        for strides in ((2, 1, 1, 1), (2, 2, 1, 1), (3, 2, 2, 1), (4, 1, 3, 2)):
            by_check = fits(lambda p=pixels, s=strides: feature_sides((p, p), s))
            by_encoder = fits(lambda p=pixels, s=strides: PixelEncoder((3, p, p), 1, s))
            assert by_check == by_encoder, (pixels, strides)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"wandb": "mine"}, "wandb is set but not installed; run: pip install wandb"),
        pytest.param(
            {"task": "dmc:cheetah_run"},
            "a dmc: task needs mujoco",
            marks=pytest.mark.env("dmc", gl=False),
        ),
    ],
)
def test_what_this_machine_lacks_is_left_to_others(config, changes, message, monkeypatch):
    monkeypatch.setattr("revbis.runs.preflight.is_installed", lambda module: False)
    monkeypatch.setattr("revbis.envs.suite.is_installed", lambda module: module == "gymnasium")
    changed = config.with_settings(**changes)
    check(changed, here=False)
    with pytest.raises(UnfitMachineError, match=message):
        check(changed)


@pytest.mark.parametrize(
    ("cuda", "device", "message"),
    [
        (0, "cuda", "PyTorch finds no CUDA GPU; use auto or cpu"),
        (0, "cuda:0", "PyTorch finds no CUDA GPU"),
        (0, "mps", "PyTorch finds no Apple GPU"),
        (2, "cuda:2", "there are 2 GPUs"),
        (2, "cuda:1", None),
        (2, "cuda", None),
        (0, "auto", None),
        (0, "cpu", None),
    ],
)
def test_a_device_must_be_there(config, cuda, device, message, monkeypatch):
    import torch

    preflight._device_problem.cache_clear()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    changed = config.with_settings(device=device)
    check(changed, here=False)
    if message is None:
        check(changed)
    else:
        with pytest.raises(UnfitMachineError, match=message):
            check(changed)
    preflight._device_problem.cache_clear()


def test_changes_that_are_safe_are_returned(config):
    [change] = check_unchanged(config, config.with_settings(log_every=7), "here")
    assert change.safe and str(change) == "--log-every was 80, now 7"
    with pytest.raises(ValueError, match=r"^here was started") as caught:
        check_unchanged(config, config.with_settings(hidden=3, batch_size=9), "here")
    assert "--hidden" in str(caught.value) and "--batch-size" in str(caught.value)


@pytest.mark.env("dmc", gl=False)
def test_a_missing_folder_of_videos_is_told_here_alone(config, tmp_path):
    with_video = config.with_settings(task="dmc:cheetah_run", distractor=f"video:{tmp_path}/none")
    check(with_video, here=False)
    with pytest.raises(ValueError, match="needs a folder"):
        check(with_video)


def test_no_torch_is_imported():
    from tests.envs.toys import run_python

    code = (
        "import sys\nfrom revbis.runs.preflight import check\n"
        "from revbis.runs.presets import preset_config\n"
        "check(preset_config('cpu', 'dmc:cheetah_run'), here=False)\n"
        "check(preset_config('paper', 'json:loads'))\n"
        "print([m for m in ('torch', 'numba', 'mujoco', 'dm_control') if m in sys.modules])"
    )
    done = run_python(code)
    assert done.stdout == "[]\n", done.stderr
