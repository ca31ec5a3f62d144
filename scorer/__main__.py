"""The program as a module: `python -m scorer`."""

from scorer.cli import main

if __name__ == "__main__":
    main()
