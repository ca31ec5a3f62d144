"""The command `init`: drafts the package of a model."""

from pathlib import Path
from typing import Annotated

import typer

from model_registry.cli_common import Json, print_result
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
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX model.", show_default=False)],
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
    json: Json = False,
) -> None:
    """Draft the package of a model; gaps that need a decision are marked FILL IN. Existing files are not overwritten."""
    from model_registry.onnx_tools import draft_package

    folder = into or Path(f"{model.stem}-1.0.0")
    drafted = draft_package.write(model, folder, example, labels, (*DEFAULT_DOMAINS, *(op_domain or [])), table or ())
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
