"""Run torchrun in a process that dies with its parent: `python -m training.recipes.network.torchrun_agent OPTIONS`."""

import os
import sys

from training.recipes.network.torchrun_launch import PARENT, die_with_parent


def main() -> None:
    """Run torchrun, which starts the workers and restarts them if one dies."""
    die_with_parent()
    os.environ[PARENT] = str(os.getpid())
    from torch.distributed import run

    run.main(sys.argv[1:])


if __name__ == "__main__":
    main()
