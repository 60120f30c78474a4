"""The commands of `revbis`, a module for each group. They import what they need when they run."""
