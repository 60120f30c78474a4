"""What `revbis.io.runtime.prepare` does for somebody else's agent.

A plain PyTorch encoder (four convolutions, 84×84, batch 256, no trick of ours), forward and
backward, in a process that was prepared and in one that was not, in turn. How much is gained
depends on the machine, so nothing is required. Times are of the processor.
"""

from __future__ import annotations

import subprocess
import sys

from _measure import finish, median_ratio, one_thread, print_table

one_thread()

ROUNDS = 3
WORK = """
import sys, time
from statistics import median
if sys.argv[1] == "prepared":
    from revbis.io.runtime import prepare
    prepare(threads=1)
import torch
from torch import nn
torch.manual_seed(0)
layers = [nn.Conv2d(9, 32, 3, 2), nn.ReLU()]
for _ in range(3):
    layers += [nn.Conv2d(32, 32, 3), nn.ReLU()]
encoder, images = nn.Sequential(*layers), torch.rand(256, 9, 84, 84)
times = []
for _ in range(5):
    start = time.process_time()
    encoder(images).square().mean().backward()
    times.append(time.process_time() - start)
print(median(times[2:]))
"""


def seconds(way: str) -> float:
    command = [sys.executable, "-c", WORK, way]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def main() -> None:
    ways = ("plain", "prepared")
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way in ways:
            times[way].append(seconds(way))
    ratio = median_ratio(times["plain"], times["prepared"])
    print_table(("process", "seconds"), [(way, sorted(times[way])[ROUNDS // 2]) for way in ways])
    finish("prepare", {"plain_to_prepared": ratio}, [])


if __name__ == "__main__":
    main()
