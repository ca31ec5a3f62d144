"""The verbs of `scorer train`."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from model_registry.extras import install_command
from publisher.errors import USAGE, Fatal
from publisher.runtime.command_line import LazyCommands
from training import environment

VERBS = {
    "run": "training.commands.run:run",
    "list": "training.commands.runs:list_",
    "show": "training.commands.runs:show",
    "compare": "training.commands.compare:compare",
    "thresholds": "training.commands.thresholds:thresholds",
    "export": "training.commands.export:export",
    "reproduce": "training.commands.reproduce:reproduce",
    "demo": "training.commands.demo:demo",
}
LIBRARIES = ("lightgbm", "onnx", "onnxruntime", "optuna", "pyarrow", "scipy")


def commands() -> Mapping[str, Any]:
    """Return the commands by verb; each is imported on first use."""
    return LazyCommands(VERBS)


def missing() -> list[str]:
    """Return the required packages that are not installed."""
    return [name for name in LIBRARIES if find_spec(name) is None]


def prepare() -> None:
    """Restart the process with the environment variables that `environment.py` pins, unless they are set.

    Raises Fatal (exit code 2) with the pip command if a required package is not installed.
    """
    if names := missing():
        hint = install_command("cpu", "training")
        raise Fatal(f"scorer train needs packages that are not installed: {', '.join(names)}", hint, USAGE)
    environment.pin()
