"""Replay: each frame stored once; stacks, n-step returns and shifts are made when sampling."""

from revbis.replay.batch import Batch, OneStep
from revbis.replay.buffer import Replay

__all__ = ["Batch", "OneStep", "Replay"]
