"""`python -m napkin`: the command line."""

from napkin.cli import main

main()
