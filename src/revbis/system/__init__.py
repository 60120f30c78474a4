"""The machine: memory, files, threads, optional packages, compiled code."""
