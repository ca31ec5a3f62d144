"""The program `python deploy/training`."""

import sys
from importlib.util import find_spec

from publisher.process import command_line
from training import environment

VERBS = {"snapshot": "training.commands.snapshot:snapshot"}
app = command_line.program("Turn events and what came true of them into rows to train on.", VERBS)


def main() -> None:
    """Run the program, with the pins of environment.py; exit code 2 where its libraries are missing."""
    environment.pin()
    from model_registry.errors import RegistryError

    if find_spec("pyarrow") is None:
        print("error: pyarrow is missing\nhint: pip install -e '.[training]'", file=sys.stderr)
        sys.exit(2)
    command_line.run(app, RegistryError)
