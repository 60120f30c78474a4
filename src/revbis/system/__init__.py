"""What the machine offers: memory, files, threads, optional packages, compiled code, words."""
