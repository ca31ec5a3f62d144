"""`python deploy/training VERB`; `deploy/training/reference.md` describes the verbs."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # where the package `training` is

from scorer.entry_points import check_packages  # noqa: E402

if __name__ == "__main__":
    check_packages()
    from training.cli import main

    main()
