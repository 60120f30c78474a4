"""Bad inputs at every border: each must end in an error that is meant for the user.

`python -m tests.fuzz 10000` tries so many and prints the counts; the suite tries a few hundred.
"""
