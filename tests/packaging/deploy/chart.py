"""Run Helm on the chart of deploy/: render it with values, and return the objects or the error.

Helm is a Go program that is built once (`tests/support/golang.py`). Tests that render are marked with `needs_helm`. A rendering
takes a fifth of a second.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.environment import ROOT
from tests.support.golang import program

CHART = ROOT / "deploy" / "chart"
EXAMPLES = CHART / "examples"
MODULE = "helm.sh/helm/v3/cmd/helm@v3.18.4"
KUBERNETES = "1.34"
needs_helm = pytest.mark.debian("go")


class RenderingError(Exception):
    """Helm rejected the values; the message is that of Helm."""


def helm(*arguments: str | Path, cwd: Path | None = None) -> str:
    """Run a command of Helm and return its standard output. Raises RenderingError with its standard error."""
    command = [program(MODULE), *arguments]
    finished = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise RenderingError(finished.stdout + finished.stderr)
    return finished.stdout


def render(
    files: Sequence[Path], values: Mapping[str, Any] | None = None, *, release: str = "flight-delay", namespace: str = "scoring"
) -> list[dict[str, Any]]:
    """Render the chart.

    Args:
        files: values files, of which later ones override earlier ones.
        values: values that override those of the files, by dotted path.
        release: the name of the release.
        namespace: the namespace of the release.

    Returns:
        The objects, in the order in which Helm installs them.

    Raises:
        RenderingError: Helm rejects the values.
    """
    arguments: list[str | Path] = ["template", release, CHART, "--namespace", namespace, "--kube-version", KUBERNETES]
    for file in files:
        arguments += ["--values", file]
    for path, value in (values or {}).items():
        arguments += ["--set-json", f"{path}={json.dumps(value)}"]
    # The parser in C is four times as fast as that of safe_load_all.
    return [thing for thing in yaml.load_all(helm(*arguments), yaml.CSafeLoader) if thing]
