"""OpenGL: which backend, when it is chosen, what cannot work, and leaving without noise."""

import os
import re

import numpy as np
import pytest

from envs.toys import run_python
from revbis.envs import rendering
from revbis.envs.rendering import Camera, RenderingError, choose_backend

LINUX = pytest.mark.skipif("sys.platform != 'linux'", reason="EGL and OSMesa are for Linux")


# ---- the choice


@LINUX
@pytest.mark.parametrize(
    ("given", "loads", "chosen"),
    [
        (None, {"egl", "osmesa"}, "egl"),
        ("", {"egl", "osmesa"}, "egl"),
        (None, {"osmesa"}, "osmesa"),
        ("EGL", {"egl"}, "egl"),  # dm_control knows lower-case names only
        ("osmesa", {"egl", "osmesa"}, "osmesa"),
        ("egl", set(), "egl"),
        ("glfw", {"egl"}, "glfw"),
        ("disabled", {"egl"}, "disabled"),
    ],
)
def test_the_users_choice_then_egl_then_osmesa(
    monkeypatch, given: str | None, loads: set[str], chosen: str
) -> None:
    monkeypatch.setenv("MUJOCO_GL", given or "")
    if given is None:
        monkeypatch.delenv("MUJOCO_GL")
    monkeypatch.setattr(rendering, "backend_loads", loads.__contains__)
    assert choose_backend() == chosen
    assert os.environ["MUJOCO_GL"] == chosen


@LINUX
def test_without_any_backend_the_packages_are_named(monkeypatch) -> None:
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(rendering, "backend_loads", lambda name: False)
    with pytest.raises(RenderingError) as error:
        choose_backend()
    for word in ("apt-get install", "libegl1", "libgl1", "conda install", "libegl"):
        assert word in str(error.value)
    assert "MUJOCO_GL" not in os.environ


def test_elsewhere_the_system_has_its_own(monkeypatch) -> None:
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(rendering.sys, "platform", "darwin")
    monkeypatch.setattr(rendering, "backend_loads", lambda name: False)
    assert choose_backend() == "glfw"
    assert "MUJOCO_GL" not in os.environ


def test_a_library_that_is_not_there_does_not_load(monkeypatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(rendering.ctypes, "CDLL", missing)
    assert not rendering.backend_loads("egl")
    assert not rendering.backend_loads("osmesa")


def test_egl_without_libgl_does_not_load(monkeypatch) -> None:
    real = rendering.ctypes.CDLL

    def without_gl(name: str) -> object:
        if "libEGL" not in name:
            raise OSError(name)
        return real(name)

    monkeypatch.setattr(rendering.ctypes, "CDLL", without_gl)
    assert not rendering.backend_loads("egl")


def test_egl_without_a_device_does_not_load(monkeypatch) -> None:
    class Library:
        @staticmethod
        def eglGetProcAddress(name: bytes) -> int:  # noqa: N802
            return 0

    monkeypatch.setattr(rendering.ctypes, "CDLL", lambda name: Library())
    Library.eglGetProcAddress.restype = None
    assert not rendering.backend_loads("egl")


@pytest.mark.env
def test_the_backend_of_this_machine_loads() -> None:
    assert choose_backend() not in ("egl", "osmesa") or rendering.backend_loads(choose_backend())


# ---- chosen before MuJoCo is imported

WATCH = """
import os, sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "mujoco":
            print(os.environ.get("MUJOCO_GL", "nothing"))
sys.meta_path.insert(0, Watch())
from revbis.envs import make_env
"""


@LINUX
@pytest.mark.env("dmc", "metaworld")
@pytest.mark.parametrize(
    "code",
    [
        "make_env('dmc:cartpole_balance', seed=1)",
        "make_env('metaworld:reach', seed=1, quality='fast')",
        "make_env('gym:HalfCheetah-v5', seed=1)",
        "make_env('dmc:reach_site', seed=1, observation='state')",
    ],
)
def test_the_backend_is_chosen_before_mujoco_loads(code: str) -> None:
    done = run_python(WATCH + code, MUJOCO_GL=None)
    assert done.stdout.split() in (["egl"], ["osmesa"]), done.stdout + done.stderr


@pytest.mark.env("dmc")
def test_the_users_backend_is_used() -> None:
    code = (
        "import os\nfrom revbis.envs import make_env\n"
        "env = make_env('dmc:cartpole_balance', seed=1, pixels=16)\n"
        "print(env.reset()[0].std() > 1)\n"
        "(renderer,) = env.simulation._camera._renderers.values()\n"
        "print(type(renderer._gl).__module__, os.environ['MUJOCO_GL'])"
    )
    for backend in filter(rendering.backend_loads, ("egl", "osmesa")):
        done = run_python(code, MUJOCO_GL=backend, PYOPENGL_PLATFORM=None)
        assert done.stdout.splitlines() == ["True", f"mujoco.{backend} {backend}"], done.stderr


# ---- what cannot work is reported

PIXELS = "from revbis.cli import main\nmain(['env', 'preview', 'TASK', '--pixels', '16'])"


@LINUX
@pytest.mark.env("dmc", "metaworld", gl=False)
@pytest.mark.parametrize(
    ("backend", "task"),
    [
        ("disabled", "dmc:cartpole_balance"),
        ("disabled", "metaworld:reach"),
        ("glfw", "metaworld:reach"),
        ("nonsense", "dmc:cartpole_balance"),
    ],
)
def test_a_backend_that_does_not_work_is_named_in_one_line(backend: str, task: str) -> None:
    code = PIXELS.replace("TASK", task)
    variables = {"MUJOCO_GL": backend, "PYOPENGL_PLATFORM": None, "DISPLAY": None}
    done = run_python(code, WAYLAND_DISPLAY=None, **variables)
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]  # GLFW says something of its own before
    assert re.match(f"revbis: error: .*'{backend}'.*", last), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.env("dmc", "metaworld", gl=False)
def test_vectors_need_no_opengl() -> None:
    code = (
        "import sys\nfrom revbis.envs import make_env\n"
        "for task in sys.argv[1:]:\n"
        "    env = make_env(task, seed=1, observation='state')\n"
        "    observation, _ = env.reset()\n"
        "    env.step(env.action_space.sample())\n"
        "    print(task, observation.dtype, observation.shape)"
    )
    tasks = ("dmc:cartpole_balance", "dmc:reach_duplo", "metaworld:reach", "gym:Pendulum-v1")
    done = run_python(code, *tasks, MUJOCO_GL="disabled", PYOPENGL_PLATFORM=None)
    shapes = ("(5,)", "(55,)", "(39,)", "(3,)")
    wanted = [f"{task} float32 {shape}" for task, shape in zip(tasks, shapes, strict=True)]
    assert done.stdout.splitlines() == wanted and done.stderr == "", done.stderr


# ---- renderers


MODEL = """
<mujoco><visual><global offwidth="20" offheight="20"/></visual>
<worldbody><light pos="0 0 3"/><camera name="eye" pos="0 -3 1" xyaxes="1 0 0 0 0.3 1"/>
<geom type="plane" size="5 5 .1" rgba=".2 .2 .2 1"/>
<body pos="0 0 .5"><freejoint/><geom size=".3" rgba="1 0 0 1"/></body>
<body pos="1 0 .6" euler="90 0 0"><geom type="plane" size=".3 .3 .1" rgba="0 1 0 1"/></body>
</worldbody></mujoco>
"""


@pytest.fixture
def world():
    import mujoco

    model = mujoco.MjModel.from_xml_string(MODEL)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return model, data


@pytest.mark.env
@pytest.mark.parametrize("quality", ["full", "fast"])
def test_a_renderer_leaves_the_model_as_it_was(world, quality: str) -> None:
    model, data = world
    screen, detail = model.vis.global_, model.vis.quality

    def settings() -> tuple[int, ...]:
        return screen.offwidth, screen.offheight, detail.offsamples, detail.shadowsize

    before, state = settings(), data.qpos.copy()
    renderer = rendering.Renderer(model, 300, 0, quality)  # larger than the model's framebuffer
    assert settings() == before and before[2] > 0 and before[3] > 0
    picture = np.zeros((3, 300, 300), dtype=np.uint8)
    renderer.draw(data, picture)
    np.testing.assert_array_equal(data.qpos, state)
    assert (picture[0] > picture[1] + 50).sum() > 500  # the red ball
    renderer.close()


@pytest.mark.env
def test_only_planes_of_the_world_are_behind(world) -> None:
    model, data = world
    renderer = rendering.Renderer(model, 64, 0, "fast")
    first = np.zeros((3, 64, 64), dtype=np.uint8)
    renderer.draw(data, first)
    background_mask = renderer.background_mask(data)
    red, green = ((first[c] > 1.5 * first[:2].min(axis=0) + 20) for c in (0, 1))
    assert red.sum() > 50 and not background_mask[red].any()
    assert green.sum() > 10 and not background_mask[green].any()  # a plane of a body
    assert background_mask[0].all() and background_mask[-1].all()  # sky above, ground below
    assert (~background_mask).sum() < 3 * (red | green).sum()
    again = np.zeros_like(first)
    renderer.draw(data, again)  # segmentation is over
    np.testing.assert_array_equal(first, again)
    renderer.close()


@pytest.mark.env
def test_a_camera_follows_a_rebuilt_model(world) -> None:
    import mujoco

    camera = Camera(24, "eye", "fast")
    other = mujoco.MjModel.from_xml_string(MODEL.replace("1 0 0 1", "0 0 1 1"))
    data = mujoco.MjData(other)
    mujoco.mj_forward(other, data)
    out = np.zeros((3, 24, 24), dtype=np.uint8)
    for (model, now), channel in zip((world, (other, data), world), (0, 2, 0), strict=True):
        camera.draw(model, now, out)
        assert (out[channel] > out[2 - channel].astype(int) + 50).sum() > 10
    (renderer,) = camera._renderers.values()
    assert renderer.model is world[0]
    camera.close()


@pytest.mark.env
def test_what_is_behind_does_not_depend_on_the_quality(world) -> None:
    masks = [Camera(40, "eye", quality).background_mask(*world) for quality in ("full", "fast")]
    np.testing.assert_array_equal(*masks)
    full = Camera(40, "eye", "full")
    full.draw(*world, np.zeros((3, 40, 40), dtype=np.uint8))
    np.testing.assert_array_equal(full.background_mask(*world), masks[1])


@pytest.mark.env
def test_a_closed_renderer_says_so(world) -> None:
    model, data = world
    renderer = rendering.Renderer(model, 16, 0, "fast")
    renderer.close()
    renderer.close()
    with pytest.raises(ValueError, match="closed; make a new one"):
        renderer.draw(data, np.zeros((3, 16, 16), dtype=np.uint8))


FORK = """
import os, signal, sys
from revbis.envs import make_env
env = make_env("metaworld:reach", seed=1, pixels=16, quality="fast")
env.reset()
child = os.fork()
if child == 0:
    signal.alarm(100)
    try:
        CODE
    except ValueError as error:
        print(error, flush=True)
    env.close()
    os._exit(0)
_, status = os.waitpid(child, 0)
print(status, env.step(env.action_space.sample())[0].std() > 1)
"""
NEW = "make_env('metaworld:reach', seed=1, pixels=16, quality='fast').reset()"


@LINUX
@pytest.mark.env("metaworld")
@pytest.mark.parametrize("code", ["env.step(env.action_space.sample())", NEW])
def test_after_a_fork_the_error_says_spawn(code: str) -> None:
    done = run_python(FORK.replace("CODE", code))
    message, last = done.stdout.splitlines()
    assert "does not work after a fork" in message and "context='spawn'" in message
    known = "use of fork() may lead to deadlocks"  # Python 3.12 and newer warn, of the test itself
    assert last == "0 True" and (not done.stderr or known in done.stderr)


# ---- leaving

LEAVE = """
import sys
from revbis.envs import make_env
kept = []
for word in sys.argv[1:]:
    if word == "own":
        from dm_control import suite
        env = suite.load("cartpole", "balance")
        env.reset()
        env.physics.render(16, 16)
    else:
        task, _, distractor = word.partition("+")
        env = make_env(task, seed=1, pixels=16, quality=QUALITY, distractor=distractor or None)
        env.reset()
        env.step(env.action_space.sample())
    kept.append(env)
print("done")
""".replace("QUALITY", "'full' if task.startswith('gym') else 'fast'")
EACH = ("dmc:cartpole_balance+noise", "dmc:reach_site", "metaworld:reach", "gym:HalfCheetah-v5")


@LINUX
@pytest.mark.env("dmc", "metaworld")
@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("egl", (*EACH, "own", "dmc:quadruped_escape")),
        ("osmesa", EACH),
        ("egl", ("metaworld:reach", "own")),
        ("osmesa", ("dmc:quadruped_escape",)),
    ],
)
def test_leaving_without_closing_is_quiet(backend: str, words: tuple[str, ...]) -> None:
    if not rendering.backend_loads(backend):
        pytest.skip(f"{backend} is not installed")
    done = run_python(LEAVE, *words, MUJOCO_GL=backend, PYOPENGL_PLATFORM=None)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert done.stderr == ""


def test_triton_is_imported_before_opengl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Imported later it may end the process; where it is not installed, nothing happens."""
    names: list[str] = []

    def absent(name: str) -> None:
        names.append(name)
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("revbis.envs.rendering.import_module", absent)
    monkeypatch.setenv("MUJOCO_GL", "egl")
    assert choose_backend() == "egl" and names == ["triton"]
