"""The command `export`: write all runs for another tool."""

from pathlib import Path
from typing import Annotated

import typer

from publisher.runtime.command_line import Config, Json, Set, print_data
from training.runs_topic import mlflow_files
from training.runs_topic.read_history import read_history
from training.settings import load

Mlflow = Annotated[
    Path,
    typer.Option(
        "--mlflow",
        metavar="FOLDER",
        help="A folder for the files of MLflow's file store; it must not exist or be empty.",
        show_default=False,
    ),
]


def export(path: Config, mlflow: Mlflow, flags: Set = None, as_json: Json = False) -> None:
    """Export all runs on the topic `<name>.runs`, with their trials, to a folder that MLflow reads."""
    _, settings = load(path, flags or [])
    written = mlflow_files.write(read_history(settings), settings.name, mlflow)
    document = {"folder": str(mlflow), "runs": written.runs, "trials": written.trials}
    print_data(as_json, document, lambda: f"{written.runs} runs and {written.trials} trials are in {mlflow}")
