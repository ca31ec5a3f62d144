"""The command `init`: drafts the package of a model."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from model_registry.cli_common import Json, print_result, working_bar
from model_registry.default_limits import DEFAULT_DOMAINS
from model_registry.untrusted_input.terminal_text import printable

Example = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Example events, one JSON object a line; fields are matched by name.", show_default=False
    ),
]
LabelsFile = Annotated[
    Path | None,
    typer.Option(
        "--labels",
        metavar="FILE",
        help="A file with the class names, one on each line, in the order of the model's columns.",
        show_default=False,
    ),
]
Into = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="The folder to create. Default: the model's name, followed by -1.0.0.", show_default=False
    ),
]


def init(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="An ONNX model, a model folder of MLflow, or a folder of Hugging Face with an ONNX export and tokenizer.json.",
            show_default=False,
        ),
    ],
    example: Example = None,
    labels: LabelsFile = None,
    into: Into = None,
    op_domain: Annotated[
        list[str] | None,
        typer.Option(metavar="DOMAIN", help="Allow ONNX operators of this custom domain, such as ai.onnx.contrib; repeatable."),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Join the example fields NAME.field from the table NAME, which the scorer reads; repeatable.",
            show_default=False,
        ),
    ] = None,
    trust_pickle: Annotated[
        bool,
        typer.Option(
            "--trust-pickle", help="Load a pickle in a folder of MLflow. Loading it runs any code that its author put into it."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Draft the package of a model; gaps that need a decision are marked FILL IN. Existing files are not overwritten."""
    from model_registry.onnx_tools import draft_package, import_folder
    from model_registry.onnx_tools.imported_model import ImportedModel

    folder = into or Path(f"{model.resolve().name if model.is_dir() else model.stem}-1.0.0")
    with tempfile.TemporaryDirectory(prefix="model-registry-") as scratch, working_bar("converting the model"):
        imported = (
            import_folder.convert(model, Path(scratch), trust_pickle=trust_pickle) if model.is_dir() else ImportedModel(model)
        )
        drafted = draft_package.write(
            imported.model,
            folder,
            example or imported.example,
            labels or imported.labels,
            (*DEFAULT_DOMAINS, *imported.domains, *(op_domain or [])),
            table or (),
            imported.columns,
            imported.optional,
        )
    drafted.notes[:0] = imported.notes
    value = {
        "folder": str(folder),
        "files": drafted.files,
        "notes": drafted.notes,
        "gaps": drafted.gaps,
        "next": drafted.commands,
    }
    lines = [("wrote", str(folder / name)) for name in drafted.files]
    lines += [("note", note) for note in drafted.notes] + [("open", gap) for gap in drafted.gaps]
    lines += [("next", command) for command in drafted.commands]
    print_result(json, value, "\n".join(f"{key:<5} {printable(shown)}" for key, shown in lines))
