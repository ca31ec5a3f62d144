"""`python -m tests.gpu`: the same as `python -m tests gpu`."""

import sys

from tests.__main__ import run_apart

if __name__ == "__main__":
    sys.exit(run_apart("gpu", sys.argv[1:]))
