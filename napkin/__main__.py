"""`python -m napkin`: the command line."""

from napkin.cli import main

if __name__ == "__main__":  # processes that the command starts import this file, too
    main()
