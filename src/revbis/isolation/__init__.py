"""Encoders that an objective alone trains, on one stored replay buffer: `revbis isolate`.

An agent's returns mix two things: how good its metric is, and what the metric does to exploration.
Here every method learns from the same transitions, which the metric has not influenced.
"""
