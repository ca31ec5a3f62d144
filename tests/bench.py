"""`python -m tests.bench`: the same as `python -m tests bench`."""

import sys

from tests.__main__ import run_apart

if __name__ == "__main__":
    sys.exit(run_apart("bench", sys.argv[1:]))
