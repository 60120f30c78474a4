"""One camera of a MuJoCo model that may be rebuilt between episodes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from revbis.envs.rendering import Pixels, Quality, Renderer


class Camera:
    """Draws through renderers that are made on first use and again when the model is a new one.

    Args:
        size: Side of the picture.
        camera: Camera id, or its name.
        quality: "full" or "fast".
    """

    def __init__(self, size: int, camera: int | str, quality: Quality) -> None:
        self.size, self.camera, self.quality = size, camera, quality
        self._renderers: dict[Quality, Renderer] = {}

    def draw(self, model: Any, data: Any, out: Pixels) -> None:
        """Draws into `out`, [3, size, size], top row first."""
        self._renderer(model, self.quality).draw(data, out)

    def behind(self, model: Any, data: Any) -> NDArray[np.bool_]:
        """[size, size]: where only sky or ground is seen."""
        # Multisampling would blend the numbers of neighbouring objects into others.
        return self._renderer(model, "fast").behind(data)

    def refresh(self, model: Any) -> None:
        """Has height fields read again, at the start of an episode."""
        for renderer in self._renderers.values():
            if renderer.model is model and model.nhfield:
                renderer.refresh()

    def close(self) -> None:
        """Gives the OpenGL resources back."""
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
