"""How good a learned metric is: learned against exact."""
