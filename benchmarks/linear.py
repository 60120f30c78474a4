"""Products of linear layers: oneDNN's operator beside PyTorch's own, forward and both backward.

One thread, in turn, float32, at sizes of MR.Q's layers. `revbis.agents.linear` calls oneDNN where
MKL lacks AVX-512; only there must it be the faster one. Times are of the processor.
"""

from __future__ import annotations

import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from _measure import finish, in_turn, median_ratio, one_thread, print_table

one_thread()

import torch  # noqa: E402
from torch.nn import functional  # noqa: E402

from revbis.io.machine import mkl_lacks_avx512  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

ROUNDS, REPEATS, LEAST = 15, 40, 1.3
SIZES = {"cpu": (128, 256, 256), "paper": (256, 512, 512)}  # rows, inputs, outputs


def repeated(product: Callable[[], Tensor]) -> None:
    for _ in range(REPEATS):
        product()


def main() -> None:
    torch.set_num_threads(1)
    onednn = torch.ops.mkldnn._linear_pointwise.default  # noqa: SLF001
    rows, figures, missed = [], {}, []
    for name, (batch, inputs, outputs) in SIZES.items():
        x, weight = torch.randn(batch, inputs), torch.randn(outputs, inputs)
        gradient = torch.randn(batch, outputs)
        factors = {  # of products a bᵀ
            "forward": (x, weight),
            "for_inputs": (gradient, weight.t()),
            "for_weights": (gradient.t(), x.t()),
        }
        for kind, (a, b) in factors.items():
            runs = [
                partial(repeated, partial(functional.linear, a, b)),
                partial(repeated, partial(onednn, a, b, None, "none", [], "")),
            ]
            times, _ = in_turn(runs, ROUNDS, time.process_time)
            work = 2e-9 * batch * inputs * outputs * REPEATS
            ratio = median_ratio(*times)
            size = f"{batch} × {inputs} × {outputs}"
            rows.append((name, size, kind, *(work / median(spent) for spent in times), ratio))
            figures[f"{name}_{kind}"] = ratio
            if mkl_lacks_avx512() and ratio < LEAST:
                missed.append(f"{name}, {kind}: oneDNN is {ratio:.2f}× as fast, wanted {LEAST:g}×")
    print_table(("sizes", "product", "pass", "PyTorch, GFLOP/s", "oneDNN, GFLOP/s", "ratio"), rows)
    finish("linear", figures, missed)


if __name__ == "__main__":
    main()
