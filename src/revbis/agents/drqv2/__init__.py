"""DrQ-v2, alone or with a bisimulation objective. `settings` can be read without torch."""
