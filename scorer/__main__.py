"""The program as a module: `python -m scorer`."""

from scorer.entry_points import scorer

if __name__ == "__main__":
    scorer()
