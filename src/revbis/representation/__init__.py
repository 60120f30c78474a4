"""What an embedding is worth: measures, against exact metrics, on stored data, in pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Embeddings: φ; what the critic reads; and the task's true state, which tells how much of what is
# irrelevant can be read from what is not.
EMBEDDINGS = {
    "phi": "φ",
    "psi": "ψ, policy's action",
    "trunk": "critic's trunk",
    "task": "true state",
}

# Measures, in the order of tables, with their headings.
MEASURES = {
    "denoising_id": "DF, training noise",
    "denoising_ood": "DF, evaluation noise",
    "state_r2": "state R²",
    "effective_rank": "effective rank",
    "value": "ρ with ΔV",
    "true": "ρ with U",
    "gate_r2": "gate R²",
    "instance_r2": "instance R²",
    "shadow_r2": "shadow R²",
    "walk_r2": "walk R²",
    "gaussian_r2": "gaussian R²",
}
_USUAL = ("denoising_id", "denoising_ood", "state_r2", "effective_rank", "value")


def shown_measures(rows: Iterable[Mapping[str, object]]) -> dict[str, str]:
    """The usual measures, and those of the others that some row has, with their headings."""
    found = {name for row in rows for name, value in row.items() if value is not None}
    return {
        name: heading
        for name, heading in MEASURES.items()
        if name in _USUAL or any(f"{embedding}_{name}" in found for embedding in EMBEDDINGS)
    }


NO_NOISE = "no distractor and no state noise: there is no denoising factor (DF)"
