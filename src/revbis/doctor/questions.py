"""The questions of `revbis doctor`, each answered by a process of its own.

`python -m revbis.doctor.questions QUESTION` prints its answer as one marked line of JSON.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from revbis.doctor.examination import MARK, SIZE, Answer
from revbis.envs.rendering import (
    QUALITIES,
    Quality,
    Renderer,
    RenderingError,
    backend_loads,
    choose_backend,
)
from revbis.envs.suites import SUITES
from revbis.io.machine import (
    available_bytes,
    bfloat16_units,
    control_groups,
    total_bytes,
    usable_cores,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from revbis.envs.suite import Suite

_SECONDS = 0.5
_DRIVER, _DEVICES = Path("/proc/driver/nvidia/version"), Path("/dev")

# A shadow, a reflection and edges: what makes full quality slower than fast.
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


def main(question: str) -> None:
    """Prints the answer to a question, or what went wrong."""
    try:
        answer = QUESTIONS[question]()
    except ModuleNotFoundError as error:
        answer = {"error": f"{error.name} is not installed", "absent": error.name}
    except Exception as error:  # noqa: BLE001 (other libraries may raise anything)
        text = str(error).strip() or type(error).__name__
        answer = {"error": " ".join(text.split())}
    print(f"\n{MARK}{json.dumps(answer)}", flush=True)  # noqa: T201


def machine() -> Answer:
    """Cores, memory and disk that this process may use, an NVIDIA GPU's driver, bfloat16."""
    folders = dict.fromkeys((str(Path.cwd()), tempfile.gettempdir()))
    total = total_bytes()
    return {
        "cores": os.cpu_count() or 1,
        "affinity": usable_cores(),
        "quota": min(_cpu_quotas(), default=None),
        "memory": total,
        "memory free": min(available_bytes(), total),
        "disk free": {path: shutil.disk_usage(path).free for path in folders},
        "read only": [path for path in folders if not os.access(path, os.W_OK)],
        "nvidia": _nvidia_driver(),
        "bfloat16": bfloat16_units(),
    }


def _cpu_quotas() -> list[float]:
    """The limit of each control group that has one, in cores."""
    quotas = []
    for folder in control_groups("cpu"):
        words = _read(folder / "cpu.max").split()  # version 2; then version 1
        words = words or [_read(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
        if words[0].isdecimal():  # "max" and -1 mean no limit
            quotas.append(int(words[0]) / int(words[1]))
    return quotas


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _nvidia_driver() -> str | None:
    """The driver's version of an NVIDIA GPU, empty if unknown; None if there is no GPU."""
    loaded = re.search(r"Module\s.*?(\d+\.[\d.]+)", _read(_DRIVER))
    if loaded:
        return loaded[1]
    if any(_DEVICES.glob("nvidia[0-9]*")):
        return ""
    if not shutil.which("nvidia-smi"):
        return None
    listed = subprocess.run(
        ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=False
    )
    return "" if "GPU" in listed.stdout and listed.returncode == 0 else None


def torch() -> Answer:
    """Version, threads and device; computes a sum on the device."""
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
    return {"backend": choose_backend()}


def draw() -> Answer:
    """Draws with the backend that MUJOCO_GL names: the renderer, and frames per second."""
    backend = os.environ["MUJOCO_GL"]
    if backend != "glfw" and not backend_loads(backend):
        return {"error": "the system library is missing or finds no device", "library": False}
    import mujoco

    model = mujoco.MjModel.from_xml_string(_SCENE)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    answer: Answer = {}
    for quality in QUALITIES:
        answer |= _measure(model, data, quality)
    return answer


def _measure(model: object, data: object, quality: Quality) -> Answer:
    """Frames per second in one quality; refuses a blank image."""
    import numpy as np

    frame = np.zeros((3, SIZE, SIZE), dtype=np.uint8)
    renderer = Renderer(model, SIZE, 0, quality)
    renderer.draw(data, frame)
    if frame.min() == frame.max():
        return {"error": f"the image is blank in {quality} quality"}
    GL = import_module("OpenGL.GL")  # only now: MuJoCo has chosen its platform
    names = {"renderer": GL.GL_RENDERER, "vendor": GL.GL_VENDOR}
    answer: Answer = {key: (GL.glGetString(name) or b"").decode() for key, name in names.items()}
    count, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < _SECONDS or count == 0:
        renderer.draw(data, frame)
        count += 1
    renderer.close()
    return {**answer, quality: count / passed}


def mujoco() -> Answer:
    """Steps a small scene."""
    choose_backend()
    import mujoco

    model = mujoco.MjModel.from_xml_string(_SCENE)
    mujoco.mj_step(model, mujoco.MjData(model))
    return {}


def step(suite: Suite) -> Answer:
    """Steps a suite's example, without drawing."""
    with suppress(RenderingError):
        choose_backend()  # as training does: simulators read MUJOCO_GL when they are imported
    simulation = suite.make(suite.local_name(suite.example), size=0, quality="full")
    simulation.reset(0)
    simulation.step((simulation.low + simulation.high) / 2)
    simulation.close()
    return {}


# By name; a suite is asked for by the name of its simulator's package.
QUESTIONS: dict[str, Callable[[], Answer]] = {
    **{question.__name__: question for question in (machine, torch, chosen, draw, mujoco)},
    **{suite.packages[-1]: partial(step, suite) for suite in SUITES.values()},
}

if __name__ == "__main__":
    main(sys.argv[1])
