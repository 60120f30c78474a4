"""Benchmarks of speed on this machine."""
