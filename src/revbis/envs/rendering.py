"""Off-screen rendering with MuJoCo: the OpenGL backend, and a renderer of exactly one size.

Two qualities. `full` gives the pixels of the simulators' own renderers. `fast` omits shadows,
reflections and multisampling, on which software OpenGL spends most of its time; its pixels differ
slightly, so the quality is part of an environment's identity.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 (so that its cleanup at exit runs after ours)
import ctypes
import os
import sys
import threading
import weakref
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator

Quality = Literal["full", "fast"]
QUALITIES: tuple[Quality, ...] = ("full", "fast")
Pixels = NDArray[np.uint8]

APT_LINE = "apt-get install -y libegl1 libgl1"
CONDA_LINE = "conda install -c conda-forge libegl libgl"
_BACKENDS = ("egl", "osmesa", "glfw")
# MuJoCo accepts these too: other systems, other names of glfw, and no rendering.
_OTHERS = ("glx", "wgl", "cgl", "enable", "enabled", "on", "true", "1")
_OFF = ("disable", "disabled", "off", "false", "0")
_GEOMS = 10_000  # a scene's capacity


class RenderingError(ValueError):
    """This machine cannot render off screen; the message says what to install."""


def choose_backend() -> str:
    """Sets MUJOCO_GL before MuJoCo is imported: the user's choice, else EGL, else OSMesa.

    Raises:
        RenderingError: If neither library can be loaded, with the packages to install.
    """
    chosen = os.environ.get("MUJOCO_GL", "").strip().lower()
    if chosen and chosen not in (*_BACKENDS, *_OTHERS, *_OFF):
        raise RenderingError(
            f"MUJOCO_GL must be one of {', '.join(_BACKENDS)}, or unset, got {chosen!r}"
        )
    if not chosen and sys.platform == "linux":
        chosen = next((name for name in ("egl", "osmesa") if backend_loads(name)), "")
        if not chosen:
            raise RenderingError(
                "no OpenGL library for off-screen rendering was found (neither libEGL nor "
                f"libOSMesa); on Debian and Ubuntu: {APT_LINE}; with conda: {CONDA_LINE}"
            )
    _import_triton()
    if chosen:  # dm_control knows lower-case names only
        os.environ["MUJOCO_GL"] = "glfw" if chosen == "glx" else chosen
    return chosen or "glfw"


def _import_triton() -> None:
    """Imports triton, which CUDA builds of PyTorch bring, before OpenGL is used.

    Imported after Mesa's software OpenGL has drawn, as by an optimiser, triton 3.7.1 ends the
    process with a segmentation fault; before it, both work. Each has an LLVM: probably these clash.
    """
    with suppress(ImportError):
        import_module("triton")


def backend_loads(name: str) -> bool:
    """Whether a backend's system library can be loaded and, for EGL, finds a device."""
    try:
        if name == "osmesa":
            _load("libOSMesa.so.8", "libOSMesa.so.6", "libOSMesa.so")
            return True
        egl = _load("libEGL.so.1", "libEGL.so")
        _load("libGL.so.1", "libGL.so", "libOpenGL.so.0")
        egl.eglGetProcAddress.restype = ctypes.c_void_p
        address = egl.eglGetProcAddress(b"eglQueryDevicesEXT")
        if not address:
            return False
        query = ctypes.CFUNCTYPE(
            ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)
        )(address)
        count = ctypes.c_int(0)
        return bool(query(0, None, ctypes.byref(count))) and count.value > 0
    except (OSError, AttributeError):
        return False


def _load(*names: str) -> ctypes.CDLL:
    for name in names[:-1]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return ctypes.CDLL(names[-1])


class Renderer:
    """Draws one camera of one model into a square framebuffer that is allocated once.

    Args:
        model: An `mujoco.MjModel`.
        size: Side of the image.
        camera: Camera id.
        quality: "full" or "fast".
    """

    def __init__(self, model: Any, size: int, camera: int, quality: Quality) -> None:
        import mujoco

        self._mj, self.model, self.size = mujoco, model, size
        self._pid = os.getpid()
        self._scene = mujoco.MjvScene(model, maxgeom=_GEOMS)
        self._option = mujoco.MjvOption()
        self._option.flags[mujoco.mjtVisFlag.mjVIS_RANGEFINDER] = False
        self._perturb = mujoco.MjvPerturb()
        self._camera = mujoco.MjvCamera()
        self._camera.fixedcamid = camera
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._rect = mujoco.MjrRect(0, 0, size, size)
        self._rgb = np.empty((size, size, 3), dtype=np.uint8)
        if quality == "fast":
            self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = False
            self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
        self._gl: Any = _new_context(size)
        self._make_current()
        with _framebuffer(model, size, quality):
            try:
                self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150)
            except mujoco.FatalError as error:
                raise _unusable(choose_backend(), error) from None
            mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        close_at_exit(self)

    def refresh(self) -> None:
        """Uploads the model's height fields again, which may change between episodes."""
        self._make_current()
        for number in range(self.model.nhfield):
            self._mj.mjr_uploadHField(self.model, self._context, number)

    def draw(self, data: Any, out: Pixels) -> None:
        """Draws the scene of `data` into `out`, [3, size, size], top row first."""
        self._update(data)
        out[...] = self._read()[::-1].transpose(2, 0, 1)

    def background_mask(self, data: Any) -> NDArray[np.bool_]:
        """[size, size]: the pixels that show the sky, a ground plane or a height field."""
        flags = self._mj.mjtRndFlag
        previous = self._scene.flags.copy()
        self._update(data)
        self._scene.flags[flags.mjRND_SEGMENT] = self._scene.flags[flags.mjRND_IDCOLOR] = True
        rgb = self._read()[::-1].astype(np.int32)
        self._scene.flags[:] = previous
        ids = rgb[..., 0] + (rgb[..., 1] << 8) + (rgb[..., 2] << 16)
        mj, scene = self._mj, self._scene
        # As numbers: those of arrays do not equal members in newer versions of MuJoCo.
        planes = (int(mj.mjtGeom.mjGEOM_PLANE), int(mj.mjtGeom.mjGEOM_HFIELD))
        behind = np.zeros(scene.ngeom + 1, dtype=bool)  # by id
        behind[0] = True  # nothing was drawn
        for geom in scene.geoms[: scene.ngeom]:
            if geom.objtype == mj.mjtObj.mjOBJ_GEOM and self.model.geom_type[geom.objid] in planes:
                behind[geom.segid + 1] = self.model.geom_bodyid[geom.objid] == 0
        mask: NDArray[np.bool_] = behind[ids]
        return mask

    def close(self) -> None:
        """Releases the OpenGL resources. Safe to call twice."""
        if self._gl is not None and self._pid == os.getpid():
            self._make_current()
            self._context.free()
            self._gl.free()
        self._gl = None

    def _update(self, data: Any) -> None:
        look = (self._option, self._perturb, self._camera, self._mj.mjtCatBit.mjCAT_ALL)
        self._mj.mjv_updateScene(self.model, data, *look, self._scene)

    def _read(self) -> Pixels:
        """The framebuffer, [size, size, 3], bottom row first; valid until the next call."""
        self._make_current()
        self._mj.mjr_render(self._rect, self._scene, self._context)
        self._mj.mjr_readPixels(self._rgb, None, self._rect, self._context)
        return self._rgb

    def _make_current(self) -> None:
        if self._gl is None:
            raise ValueError("this environment is closed; make a new one")
        _refuse_forks(self._pid)
        forget_in_dm_control()
        self._gl.make_current()


_OPEN: weakref.WeakSet[Any] = weakref.WeakSet()
_FIRST_PID: list[int] = []  # of the process that first made a context, if one did


def close_at_exit(thing: Any) -> None:
    """Calls `thing.close()` when the interpreter exits, before libraries clean up."""
    if not _OPEN:
        # Before anything registered with atexit, whatever the order of registration.
        threading._register_atexit(_close_all)  # type: ignore[attr-defined]  # noqa: SLF001
    _OPEN.add(thing)


def _close_all() -> None:
    for thing in list(_OPEN):
        thing.close()


def _refuse_forks(pid: int) -> None:
    if pid != os.getpid():
        raise ValueError(
            "OpenGL does not work after a fork: start workers with context='spawn' "
            "(gymnasium.vector.AsyncVectorEnv(..., context='spawn'))"
        )


def _unusable(backend: str, error: Exception) -> RenderingError:
    return RenderingError(
        f"the OpenGL backend {backend!r} does not work here ({error}); `revbis doctor` tries each "
        "one and says what to install"
    )


def _new_context(size: int) -> Any:
    backend = choose_backend()
    _FIRST_PID.append(os.getpid())
    del _FIRST_PID[1:]
    _refuse_forks(_FIRST_PID[0])
    try:
        if backend == "egl":
            from mujoco.egl import GLContext
        elif backend == "osmesa":
            from mujoco.osmesa import GLContext
        else:
            from mujoco.gl_context import GLContext
        context = GLContext(size, size)
    except (ImportError, AttributeError, RuntimeError, OSError) as error:
        raise _unusable(backend, error) from None
    egl = sys.modules.get("mujoco.egl")
    if egl is not None:  # others may still use the display: it is released with the process
        atexit.unregister(egl.EGL.eglTerminate)
    return context


def forget_in_dm_control() -> None:
    """Clears dm_control's record of which context is current: it is wrong now."""
    base = sys.modules.get("dm_control._render.base")
    if base is not None:
        base._CURRENT_CONTEXT_FOR_THREAD.clear()  # noqa: SLF001
        base._CURRENT_THREAD_FOR_CONTEXT.clear()  # noqa: SLF001


@contextmanager
def _framebuffer(model: Any, size: int, quality: Quality) -> Iterator[None]:
    """Sets the sizes that MuJoCo reads from the model when it makes a rendering context."""
    screen, detail = model.vis.global_, model.vis.quality
    previous = screen.offwidth, screen.offheight, detail.offsamples, detail.shadowsize
    screen.offwidth = screen.offheight = size
    if quality == "fast":
        detail.offsamples = detail.shadowsize = 0
    try:
        yield
    finally:
        screen.offwidth, screen.offheight, detail.offsamples, detail.shadowsize = previous


class Camera:
    """Draws with renderers that are made on first use, and again when the model has changed.

    Takes what a `Renderer` does; the camera may be a name.
    """

    def __init__(self, size: int, camera: int | str, quality: Quality) -> None:
        self.size, self.camera, self.quality = size, camera, quality
        self._renderers: dict[Quality, Renderer] = {}

    def draw(self, model: Any, data: Any, out: Pixels) -> None:
        """Draws into `out`, [3, size, size], top row first."""
        self._renderer(model, self.quality).draw(data, out)

    def background_mask(self, model: Any, data: Any) -> NDArray[np.bool_]:
        """[size, size]: the pixels that show only sky or ground."""
        # Multisampling would blend the ids of neighbouring objects into other ids.
        return self._renderer(model, "fast").background_mask(data)

    def refresh(self, model: Any) -> None:
        """Uploads height fields again, at the start of an episode."""
        for renderer in self._renderers.values():
            if renderer.model is model and model.nhfield:
                renderer.refresh()

    def close(self) -> None:
        """Releases the OpenGL resources."""
        for renderer in self._renderers.values():
            renderer.close()
        self._renderers.clear()

    def _renderer(self, model: Any, quality: Quality) -> Renderer:
        renderer = self._renderers.get(quality)
        if renderer is not None and renderer.model is not model:
            self._renderers.pop(quality).close()
            renderer = None
        if renderer is None:
            renderer = Renderer(model, self.size, model.camera(self.camera).id, quality)
            self._renderers[quality] = renderer
        return renderer
