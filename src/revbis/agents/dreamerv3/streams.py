"""Random numbers for code that draws from PyTorch's global generators."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

_NAMES = ("parameters", "explore", "update", "evaluate")


class Streams:
    """Named streams of random numbers; the global generators are left as they were.

    Args:
        seed: Seed of all streams.
        device: The device that numbers are drawn on, besides the CPU.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self._cuda = [device] if device.type == "cuda" else []
        words = np.random.SeedSequence(seed).generate_state(len(_NAMES))
        self._seeds = dict(zip(_NAMES, map(int, words), strict=True))
        self._states: dict[str, list[Tensor]] = {}
        for name in _NAMES:
            self.restart(name)

    def restart(self, name: str) -> None:
        """Begins a stream anew."""
        with torch.random.fork_rng(self._cuda):
            torch.manual_seed(self._seeds[name])
            self._states[name] = self._read()

    @contextmanager
    def drawing(self, name: str) -> Iterator[None]:
        """Within it, the global generators continue the stream."""
        with torch.random.fork_rng(self._cuda):
            self._write(self._states[name])
            yield
            self._states[name] = self._read()

    def state(self) -> dict[str, list[Tensor]]:
        """The streams that training draws from."""
        return {name: self._states[name] for name in ("explore", "update")}

    def restore(self, state: dict[str, list[Tensor]]) -> None:
        """Continues the streams from what `state` returned."""
        for name in ("explore", "update"):
            generators = [torch.Generator() for _ in state[name][:1]]  # refuses a foreign state
            generators[0].set_state(state[name][0].cpu())
            self._states[name] = [each.cpu() for each in state[name]]

    def _read(self) -> list[Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(each) for each in self._cuda)]

    def _write(self, states: list[Tensor]) -> None:
        torch.set_rng_state(states[0])
        for device, state in zip(self._cuda, states[1:], strict=False):
            torch.cuda.set_rng_state(state, device)
