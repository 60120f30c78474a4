"""`python -m revbis`."""

from revbis.cli import main

main()
