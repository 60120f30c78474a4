"""Bytes of images to channels-last floats: the table beside PyTorch's conversion.

Batches of the two presets, one thread, in turn. Both must give the same numbers to the last bit.
The table must be the faster one. Times are of the processor: other work does not disturb them.
"""

from __future__ import annotations

import time
from functools import partial
from statistics import median

from _measure import finish, in_turn, median_ratio, one_thread, print_table

one_thread()

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from revbis.agents.common import scaled_pixels  # noqa: E402
from revbis.io.runtime import keep_freed_memory  # noqa: E402

ROUNDS, LEAST = 21, 1.0
SIZES = {"cpu preset": (128, 9, 48, 48), "paper network": (256, 9, 84, 84)}


def converted(images: Tensor) -> Tensor:
    return images.to(torch.float32, memory_format=torch.channels_last).div_(255).sub_(0.5)


def main() -> None:
    keep_freed_memory()
    torch.set_num_threads(1)
    rows, figures, missed = [], {}, []
    for name, shape in SIZES.items():
        images = torch.randint(256, shape, dtype=torch.uint8)
        runs = [partial(converted, images), partial(scaled_pixels, images, torch.float32)]
        slow, fast = (run() for run in runs)  # compiles
        assert torch.equal(slow, fast) and slow.stride() == fast.stride()
        times, _ = in_turn(runs, ROUNDS, time.process_time)
        ratio = median_ratio(*times)
        size = "×".join(map(str, shape))
        rows.append((f"{name}, {size}", *(1000 * median(spent) for spent in times), ratio))
        figures[f"{name.replace(' ', '_')}_speedup"] = ratio
        if ratio < LEAST:
            missed.append(f"{name}: the table is {ratio:.2f}× as fast, wanted {LEAST:g}×")
    print_table(("images", "PyTorch, ms", "table, ms", "speedup"), rows)
    finish("pixels", figures, missed)


if __name__ == "__main__":
    main()
