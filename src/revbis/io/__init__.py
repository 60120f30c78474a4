"""What every other part stands on: the border for values from outside, files, the machine."""
