"""One run: the loop, its folder and files, records, checkpoints, evaluation and alarms."""
