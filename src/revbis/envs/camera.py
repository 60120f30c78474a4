"""One camera of a MuJoCo model that may be rebuilt between episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from revbis.envs.rendering import Pixels, Quality, Renderer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Camera:
    """Draws with renderers that are made on first use, and again when the model has changed.

    Args:
        size: Side of the image.
        camera: Id or name of the camera.
        quality: "full" or "fast".
    """

    def __init__(self, size: int, camera: int | str, quality: Quality) -> None:
        self.size, self.camera, self.quality = size, camera, quality
        self._renderers: dict[Quality, Renderer] = {}

    def draw(self, model: Any, data: Any, out: Pixels) -> None:
        """Draws into `out`, [3, size, size], top row first."""
        self._renderer(model, self.quality).draw(data, out)

    def behind(self, model: Any, data: Any) -> NDArray[np.bool_]:
        """[size, size]: the pixels that show only sky or ground."""
        # Multisampling would blend the ids of neighbouring objects into other ids.
        return self._renderer(model, "fast").behind(data)

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
            which = model.camera(self.camera).id
            renderer = Renderer(model, self.size, which, quality)
            self._renderers[quality] = renderer
        return renderer
