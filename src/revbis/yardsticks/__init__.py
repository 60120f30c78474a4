"""How good a learned metric is: learned against exact, and without an exact metric to compare."""
