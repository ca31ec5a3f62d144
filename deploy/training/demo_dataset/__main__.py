"""`python deploy/training/demo_dataset VERB`: build the data and the models of `scorer demo`."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])  # where the package `training` is

from publisher.runtime import command_line  # noqa: E402

VERBS = {"extract": "training.demo_dataset.extract:extract", "train": "training.demo_dataset.train:train"}

if __name__ == "__main__":
    command_line.run(command_line.program("Make the data and the models of the demo.", VERBS))
