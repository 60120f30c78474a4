"""One run: its settings, folder, records, checkpoints, evaluation, and the loop."""
