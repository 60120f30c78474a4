"""Objectives beside a direct transcription that forms every pair of embeddings.

At B = 1024 and D = 50, forward and backward on given embeddings. The transcription tiles the batch
to [B², D] twice, as public implementations do, and is otherwise the same loss: both must agree.
Times are CPU times, which on one thread are what a clock shows on an idle machine.
Memory is the most that a fresh process has resident above what it had before, by kind.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import process_time

from _measure import finish, in_turn, median_ratio, one_thread, print_table

one_thread()

import torch  # noqa: E402
from torch.nn import functional  # noqa: E402

from revbis.objectives import (  # noqa: E402
    DESIGNS,
    OBJECTIVES,
    BisimulationObjective,
    make_objective,
)

BATCH, LATENT, ACTIONS, GAMMA = 1024, 50, 6, 0.99
NAMES = [name for name in DESIGNS if name != "mico-rev-released"]
FASTER, SMALLER = 5.0, 0.1


def batch() -> tuple[torch.Tensor, ...]:
    g = torch.Generator().manual_seed(0)
    z, next_z = torch.randn(2, BATCH, LATENT, generator=g)
    action, reward = torch.rand(BATCH, ACTIONS, generator=g), torch.rand(BATCH, generator=g)
    return z.requires_grad_(), action, reward, torch.full((BATCH,), GAMMA), next_z


def make(name: str) -> BisimulationObjective:
    torch.manual_seed(0)
    return make_objective(name, LATENT, ACTIONS, reward_scale="none")


def policy_actions(
    objective: BisimulationObjective, action: torch.Tensor
) -> dict[str, torch.Tensor]:
    return dict.fromkeys(objective.policy_actions, action.flip(0))


def ours(objective: BisimulationObjective, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    out = objective(*inputs, **policy_actions(objective, inputs[1]))
    out.representation_loss.backward()
    if out.coefficient_loss is not None:
        out.coefficient_loss.backward()
    return out.representation_loss.detach()


def tiled_distance(name: str, x: torch.Tensor) -> torch.Tensor:
    """Distances of all B² pairs from two [B², D] tensors."""
    left, right = x.repeat(len(x), 1), x.repeat_interleave(len(x), dim=0)
    if name.startswith("energy"):
        own = functional.softplus(left[:, -1]) + functional.softplus(right[:, -1])
        return own / 2 + (left[:, :-1] - right[:, :-1]).square().sum(dim=1)
    cosine = functional.cosine_similarity(left, right, dim=1)
    if name.startswith("simsr"):
        return 1 - cosine
    cosine = cosine.clamp(0.0001, 0.9999)
    angle = torch.atan2((1 - cosine**2).sqrt(), cosine)
    return (left.norm(dim=1) + right.norm(dim=1)) / 2 + 0.1 * angle


def transcription(
    name: str, objective: BisimulationObjective, inputs: tuple[torch.Tensor, ...]
) -> torch.Tensor:
    z, action, reward, _, next_z = inputs
    design, (drawn,) = DESIGNS[name], policy_actions(objective, action).values() or (None,)
    unit = OBJECTIVES[name].defaults["normalisation"]

    def scale(x: torch.Tensor) -> torch.Tensor:
        return functional.normalize(x, dim=1) if unit else x

    def psi(z: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return scale(z) if objective.psi is None else scale(objective.psi(scale(z), action))

    every = torch.ones(BATCH, BATCH, dtype=torch.bool)
    if design.independent:
        every.fill_diagonal_(False)
    pairs = every.flatten()
    prediction = tiled_distance(design.distance, psi(z, action))[pairs]
    with torch.no_grad():
        after = psi(next_z, drawn) if design.follows == "pairs" else scale(next_z)
        following = tiled_distance(design.distance, after)[pairs]
    gap = (reward.repeat(BATCH) - reward.repeat_interleave(BATCH)).abs()[pairs]
    gap = gap.square() if design.means else gap
    if objective.coefficient is None:
        target = gap + GAMMA * following
    else:
        c = torch.softmax(objective.coefficient.raw_c, dim=0)
        target = c[0] * gap + c[1] * following
        functional.huber_loss(prediction.detach(), target).backward()
    loss = functional.huber_loss(prediction, target.detach())
    if design.tied:
        with torch.no_grad():
            of_pairs = tiled_distance(design.distance, psi(z, drawn))[pairs]
        loss = loss + functional.huber_loss(
            tiled_distance(design.distance, scale(z))[pairs], of_pairs
        )
    loss.backward()
    return loss.detach()


def extra_memory(name: str, kind: str) -> float:
    """Peak resident gigabytes that one step adds in a fresh process."""
    command = [sys.executable, __file__, "--memory", name, kind]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def measure_memory(name: str, kind: str) -> None:
    objective, inputs = make(name), batch()
    small = tuple(t[:8].detach().requires_grad_(t.requires_grad) for t in inputs)
    ours(objective, small)  # loads what a first step loads
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before = resident("VmRSS")
    run = ours if kind == "ours" else lambda o, i: transcription(name, o, i)
    run(objective, inputs)
    print(resident("VmHWM") - before)


def resident(field: str) -> float:
    """Resident gigabytes now (VmRSS) or at the most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024 / 1e9


def laws_beside_pairs(missed: list[str]) -> dict[str, float]:
    """The time of `laws`, whose loss has no pairs, relative to that of `simsr-rev-full`."""
    rows, figures = [], {}
    for size in (128, BATCH):
        inputs = tuple(t[:size].detach().requires_grad_(t.requires_grad) for t in batch())
        runs = []
        for name in ("laws", "simsr-rev-full"):
            torch.manual_seed(0)
            objective = make_objective(name, LATENT, ACTIONS)
            runs.append(lambda o=objective, i=inputs: ours(o, i))
            for _ in range(20):  # levels are chosen at batches 1, 2, 4, 8 and 16
                runs[-1]()
        (laws, pairs), _ = in_turn(runs, 15, process_time)
        ratio = median_ratio(laws, pairs)
        rows.append((size, 1e3 * sorted(laws)[7], 1e3 * sorted(pairs)[7], ratio))
        figures[f"laws_{size}_of_simsr_rev_full"] = ratio
        if ratio > 1.2:
            missed.append(f"laws at B = {size}: {ratio:.2f} of simsr-rev-full's time, wanted 1.2")
    print_table(("B", "laws ms", "simsr-rev-full ms", "ratio"), rows)
    return figures


def main() -> None:
    rows, figures, missed = [], {}, []
    for name in NAMES:
        objective, inputs = make(name), batch()
        runs = [
            lambda o=objective, i=inputs: ours(o, i),
            lambda n=name, o=objective, i=inputs: transcription(n, o, i),
        ]
        runs[0]()
        (fast, slow), (a, b) = in_turn(runs, 3, process_time)
        assert torch.allclose(a, b, rtol=1e-3), f"{name}: {a} is not {b}"
        ratio = median_ratio(slow, fast)
        memory = [extra_memory(name, kind) for kind in ("ours", "tiled")]
        share = memory[0] / memory[1]
        rows.append((name, 1e3 * sorted(fast)[1], 1e3 * sorted(slow)[1], ratio, *memory, share))
        figures |= {f"{name}_speedup": ratio, f"{name}_memory_share": share}
        if ratio < FASTER:
            missed.append(f"{name}: {ratio:.1f}× faster, wanted {FASTER:g}×")
        if share > SMALLER:
            missed.append(f"{name}: {share:.2f} of the memory, wanted {SMALLER:g}")
    header = ("objective", "ours ms", "tiled ms", "ratio", "ours GB", "tiled GB", "share")
    print_table(header, rows)
    figures |= laws_beside_pairs(missed)
    finish("objective", figures, missed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--memory"]:
        measure_memory(*sys.argv[2:])
    else:
        main()
