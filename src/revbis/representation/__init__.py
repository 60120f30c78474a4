"""What an embedding is worth: measures, against exact metrics, on stored data, in pictures."""

# Embeddings: φ, and what the critic reads.
EMBEDDINGS = {"phi": "φ", "trunk": "critic's trunk"}

# Measures, in the order of tables, with their headings.
MEASURES = {
    "denoising_id": "DF, training noise",
    "denoising_ood": "DF, evaluation noise",
    "state_r2": "state R²",
    "effective_rank": "effective rank",
    "value": "ρ with ΔV",
    "true": "ρ with U",
}
NO_NOISE = "no distractor and no state noise: there is no denoising factor (DF)"
