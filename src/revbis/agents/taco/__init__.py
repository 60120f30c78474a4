"""TACO: DrQ-v2 with action tokens and three losses. `settings` can be read without torch."""
