"""Dreamer-v3: a thin adapter to the agent of sheeprl."""
