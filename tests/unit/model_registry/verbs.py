"""The model-registry command in this process: what it prints, and what it ends with."""

import json
from typing import Any

from typer.testing import CliRunner, Result

from model_registry.cli import app

REPO = "oci:registry/flight-delay"


def run(*arguments: str, code: int = 0, **environment: str) -> Result:
    """A command that ends with this code."""
    result = CliRunner(env=environment).invoke(app, list(arguments))
    assert result.exit_code == code, result.output
    return result


def answer(*arguments: str) -> Any:
    """What a command prints with --json."""
    result = run(*arguments, "--json")
    assert result.stderr == ""
    return json.loads(result.stdout)
