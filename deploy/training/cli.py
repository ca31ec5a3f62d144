"""The program `python deploy/training`."""

import sys
from importlib.util import find_spec

from publisher.runtime import command_line
from training import environment

VERBS = {
    "run": "training.commands.run:run",
    "list": "training.commands.runs:list_",
    "show": "training.commands.runs:show",
    "compare": "training.commands.compare:compare",
    "export": "training.commands.export:export",
    "reproduce": "training.commands.reproduce:reproduce",
    "demo": "training.commands.demo:demo",
}
LIBRARIES = ("lightgbm", "onnx", "onnxruntime", "optuna", "pyarrow", "scipy")
app = command_line.program(
    "Train a version from labelled events and promote it: by hand, on schedule, or when labels arrive.", VERBS
)


def main() -> None:
    """Run the command line with the environment variables that `environment.py` pins.

    Exits with code 2 if a required library is not installed.
    """
    environment.pin()
    from model_registry.errors import RegistryError

    if missing := [name for name in LIBRARIES if find_spec(name) is None]:
        print(
            f"error: required packages are not installed: {', '.join(missing)}\nhint: pip install -e '.[cpu,training]'",
            file=sys.stderr,
        )
        sys.exit(2)
    command_line.run(app, RegistryError)
