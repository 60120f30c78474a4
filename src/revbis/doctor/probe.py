"""The facts for `revbis doctor`, each asked of a process of its own: OpenGL may crash or hang.

`python -m revbis.doctor.probe QUESTION` prints its answer as one marked line of JSON.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from revbis.system.memory import available_bytes, control_groups

SIZE = 84
_MARK = "revbis-doctor:"
_SECONDS = 0.5
_PATIENCE = 120.0  # importing from a cold network disk takes a minute
_PROC = Path("/proc")
_GROUPS = Path("/sys/fs/cgroup")

Answer = dict[str, Any]

# A shadow, a reflection and edges: what makes full quality dearer than fast.
_SCENE = """
<mujoco>
  <asset>
    <texture name="floor" type="2d" builtin="checker" rgb1=".1 .2 .3" rgb2=".8 .8 .9"
      width="64" height="64"/>
    <material name="floor" texture="floor" texrepeat="4 4" reflectance=".2"/>
  </asset>
  <worldbody>
    <light pos="1 -1 4" dir="-.2 .2 -1"/>
    <geom type="plane" size="3 3 .1" material="floor"/>
    <body pos="0 0 .6">
      <freejoint/>
      <geom type="capsule" size=".2 .4" rgba=".9 .4 .1 1"/>
      <geom type="sphere" pos=".5 0 0" size=".25" rgba=".2 .7 .3 1"/>
    </body>
    <camera pos="0 -3 1.5" xyaxes="1 0 0 0 .4 1"/>
  </worldbody>
</mujoco>
"""


def ask(question: str, **environment: str) -> Answer:
    """The answer of another process; a crash or a hang is an answer with an `error`.

    Args:
        question: One of `QUESTIONS`.
        environment: Variables to set for it.
    """
    try:
        done = subprocess.run(
            _command(question),
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"hangs: no answer within {_PATIENCE:.0f} s"}
    if done.returncode < 0:
        return {"error": f"crashes ({_signal_name(-done.returncode)})"}
    marked = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if done.returncode or not marked:
        last = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        return {"error": f"ends with code {done.returncode}: {last}"}
    answer: Answer = json.loads(marked[-1].removeprefix(_MARK))
    return answer


def _command(question: str) -> list[str]:
    # -P: a file of the user's folder that is called like a package must not be imported
    return [sys.executable, "-P", "-m", "revbis.doctor.probe", question]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def main(question: str) -> None:
    """Answers a question, or says what went wrong, on standard output."""
    try:
        answer = QUESTIONS[question]()
    except ModuleNotFoundError as error:
        answer = {"error": f"{error.name} is not installed", "absent": error.name}
    except Exception as error:  # whatever a foreign library raises is the answer
        text = str(error).strip() or type(error).__name__
        answer = {"error": " ".join(text.split())}
    print(f"\n{_MARK}{json.dumps(answer)}", flush=True)


def machine() -> Answer:
    """Cores, memory and disk that this process may use, and the driver of an NVIDIA GPU."""
    folders = dict.fromkeys((os.getcwd(), tempfile.gettempdir()))
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    total = min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_memory_limits()])
    return {
        "cores": os.cpu_count() or 1,
        "affinity": affinity or os.cpu_count() or 1,
        "quota": min(_cpu_quotas(), default=None),
        "memory": total,
        "memory free": min(available_bytes(), total),
        "disk free": {path: shutil.disk_usage(path).free for path in folders},
        "read only": [path for path in folders if not os.access(path, os.W_OK)],
        "nvidia": _nvidia_driver(),
    }


def _cpu_quotas() -> list[float]:
    """Cores' worth of time allowed by each control group that sets a limit."""
    quotas = []
    for folder in control_groups("cpu", _PROC, _GROUPS):
        words = _read(folder / "cpu.max").split()  # version 2; then version 1
        words = words or [_read(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
        if words[0].isdecimal():  # "max" and -1 mean no limit
            quotas.append(int(words[0]) / int(words[1]))
    return quotas


def _memory_limits() -> list[int]:
    names = ("memory.max", "memory.limit_in_bytes")
    texts = [
        _read(folder / name)
        for folder in control_groups("memory", _PROC, _GROUPS)
        for name in names
    ]
    return [int(text) for text in texts if text.isdecimal()]


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _nvidia_driver() -> str | None:
    """The driver's version ("" when unknown) if an NVIDIA GPU is here."""
    loaded = re.search(r"Module\s.*?(\d+\.[\d.]+)", _read(_PROC / "driver/nvidia/version"))
    if loaded:
        return loaded[1]
    if glob.glob("/dev/nvidia[0-9]*"):
        return ""
    if not shutil.which("nvidia-smi"):
        return None
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    return "" if "GPU" in listed.stdout and listed.returncode == 0 else None


def torch() -> Answer:
    """Version, threads and the device, on which a sum is computed."""
    import torch

    answer: Answer = {"version": torch.__version__, "threads": torch.get_num_threads()}
    answer["cuda build"] = torch.version.cuda is not None
    device, name = "cpu", ""
    if torch.cuda.is_available():
        device, name = "cuda", torch.cuda.get_device_name()
    elif torch.backends.mps.is_available():
        device = "mps"
    try:
        total = torch.ones(8, device=device).sum().item()
        if total != 8:
            answer["device error"] = f"a sum of eight ones is {total} on {device}"
    except RuntimeError as error:  # a build without kernels for this GPU
        answer["device error"] = str(error).strip().splitlines()[0]
    return {**answer, "device": device, "device name": name}


def chosen() -> Answer:
    """The backend that training would use."""
    from revbis.envs.rendering import choose_backend

    return {"backend": choose_backend()}


def draw() -> Answer:
    """Draws with the backend that MUJOCO_GL names: who draws, and frames per second."""
    from revbis.envs.rendering import backend_loads

    backend = os.environ["MUJOCO_GL"]
    if backend != "glfw" and not backend_loads(backend):
        return {"error": "the system's library is missing or finds no device", "library": False}
    import mujoco

    model = mujoco.MjModel.from_xml_string(_SCENE)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    answer: Answer = {}
    for quality in ("full", "fast"):
        answer |= _measure(model, data, quality)
    return answer


def _measure(model: Any, data: Any, quality: Any) -> Answer:
    """Frames per second in one quality; refuses a picture that shows nothing."""
    import numpy as np

    from revbis.envs.rendering import Renderer

    frame = np.zeros((3, SIZE, SIZE), dtype=np.uint8)
    renderer = Renderer(model, SIZE, 0, quality)
    renderer.draw(data, frame)
    if frame.min() == frame.max():
        return {"error": f"the picture is blank in {quality} quality"}
    GL = import_module("OpenGL.GL")  # only now: MuJoCo has said which platform it is to load
    names = {"renderer": GL.GL_RENDERER, "vendor": GL.GL_VENDOR}
    answer: Answer = {key: (GL.glGetString(name) or b"").decode() for key, name in names.items()}
    count, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < _SECONDS or count == 0:
        renderer.draw(data, frame)
        count += 1
    renderer.close()
    return {**answer, quality: count / passed}


def gymnasium() -> Answer:
    """Steps a small environment."""
    import gymnasium

    env = gymnasium.make("CartPole-v1")
    env.reset(seed=0)
    env.step(env.action_space.sample())
    env.close()
    return {}


def mujoco() -> Answer:
    """Steps a small scene."""
    chosen()
    import mujoco

    model = mujoco.MjModel.from_xml_string(_SCENE)
    mujoco.mj_step(model, mujoco.MjData(model))
    return {}


def dm_control() -> Answer:
    """Steps cheetah run."""
    import numpy as np

    chosen()  # as training does: dm_control reads MUJOCO_GL when it is imported
    from dm_control import suite

    env = suite.load("cheetah", "run", task_kwargs={"random": 0})
    env.reset()
    env.step(np.zeros(env.action_spec().shape))
    return {}


def metaworld() -> Answer:
    """Steps reach."""
    import numpy as np

    chosen()
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE as TASKS

    env = TASKS["reach-v3-goal-observable"](seed=0)
    env.reset()
    env.step(np.zeros(4))
    env.close()
    return {}


QUESTIONS: dict[str, Callable[[], Answer]] = {
    question.__name__: question
    for question in (machine, torch, chosen, draw, gymnasium, mujoco, dm_control, metaworld)
}

if __name__ == "__main__":
    main(sys.argv[1])
