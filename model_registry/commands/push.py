"""The command `push`: checks a folder and stores the folder as a version."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from model_registry.cli_common import (
    Json,
    Ref,
    champion_of,
    format_table,
    open_repository,
    print_message,
    print_result,
    progress_bars,
)
from model_registry.default_limits import DEFAULT_DOMAINS
from model_registry.errors import BadReference
from model_registry.untrusted_input.terminal_text import printable_json

MountFrom = Annotated[
    list[str] | None,
    typer.Option(
        metavar="REPO",
        help="Another repository of this registry; files that it holds are not uploaded again. Repeatable.",
        show_default=False,
    ),
]
if TYPE_CHECKING:
    from model_registry.container_image.build import BaseImage
    from model_registry.onnx_tools.prepare_package import AcceptedScore, PreparedPackage

SHOWN_CHARACTERS = 40  # most characters of an event or a score in the table of --accept


class Device(StrEnum):
    """A device that a version may require."""

    CPU = "cpu"
    CUDA = "cuda"


def push(
    ctx: typer.Context,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder with model.onnx, signature.json, golden.jsonl and README.md.")
    ],
    ref: Ref,
    mount_from: MountFrom = None,
    image: Annotated[
        str, typer.Option(metavar="BASE", help="Build a container image on this base image, or on 'scratch'.")
    ] = "",
    annotation: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="An annotation of the manifest; repeatable.")
    ] = None,
    source: Annotated[str, typer.Option(metavar="URL", help="The repository of the training code.")] = "",
    revision: Annotated[str, typer.Option(metavar="COMMIT", help="The revision of the training code.")] = "",
    licenses: Annotated[str, typer.Option(metavar="SPDX", help="The model's licence, for instance Apache-2.0.")] = "",
    device: Annotated[
        list[Device] | None, typer.Option(help="Allow scorers to run the model on this device only; repeatable.")
    ] = None,
    op_domain: Annotated[
        list[str] | None,
        typer.Option(metavar="DOMAIN", help="Allow ONNX operators of this custom domain, such as ai.onnx.contrib; repeatable."),
    ] = None,
    accept: Annotated[
        bool,
        typer.Option(
            "--accept",
            help="Before the check, show the model's scores of the golden examples, and write them into golden.jsonl.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Check a folder's model, signature and golden examples, and store the folder as a version.

    REF states the name and the version. SOURCE_DATE_EPOCH, if set, is recorded as the creation time.
    """
    from model_registry import package

    with progress_bars() as progress:
        store, target = open_repository(ctx, ref, tag=True, progress=progress, mount_from=mount_from or ())
        with _print_gaps(folder):
            accepted = _accept(folder, op_domain or []) if accept else []
            ready = _prepare(folder, device or [], op_domain or [])
        stated = _annotations(annotation or [], source=source, revision=revision, licenses=licenses)
        base = _base(ctx, image) if image else None
        pushed = package.push(
            store,
            ready.package,
            target.name,
            str(target.tag),
            created=_created(),
            annotations={**ready.annotations, **stated},
            more=ready.generated_files,
            base=base,
            only=ready.files,
        )
    value: dict[str, Any] = {"name": target.name, "version": target.tag, "digest": pushed.digest}
    value |= {"golden_examples": len(ready.package.golden), "accepted": sum(example.differs for example in accepted)}
    value |= {"ran_with_onnxruntime": ready.onnxruntime_version, "signature_derived": ready.derived, "left_out": ready.left_out}
    if ready.onnxruntime_version and not json and ready.package.golden:
        print_message(f"the model gives the scores of its golden examples ({len(ready.package.golden)})")
    print_result(json, value, f"{target.name}:{target.tag}@{pushed.digest}")


def _accept(folder: Path, op_domains: Sequence[str]) -> "list[AcceptedScore]":
    """Show on stderr the scores that the model gives to the golden examples, and write the scores into golden.jsonl."""
    from model_registry.onnx_tools import prepare_package
    from model_registry.sandbox import run_apart

    accepted = prepare_package.score_golden_examples(folder, op_domains=(*DEFAULT_DOMAINS, *op_domains), run=run_apart)
    rows = [
        [number, *map(_shortened, (example.event, example.stated, example.score)), "yes" if example.differs else ""]
        for number, example in enumerate(accepted, start=1)
    ]
    for line in format_table(["line", "event", "golden.jsonl", "model", "written"], rows).splitlines():
        print_message(line)
    if any(example.differs for example in accepted):
        prepare_package.write_accepted(folder, accepted)
    return accepted


def _shortened(value: object) -> str:
    import msgspec

    text = printable_json(msgspec.json.encode(value)).decode()
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."


def _prepare(folder: Path, devices: Sequence[Device], op_domains: Sequence[str]) -> "PreparedPackage":
    """Check the folder before the push.

    Messages on stderr report a derived signature, files that are left out, and golden examples that are missing or were not
    run.
    """
    from model_registry import package
    from model_registry.onnx_tools.prepare_package import prepare
    from model_registry.sandbox import run_apart

    ready = prepare(
        folder, devices=[allowed.value for allowed in devices], op_domains=(*DEFAULT_DOMAINS, *op_domains), run=run_apart
    )
    if ready.derived:
        print_message(f"the version gets the signature {ready.generated_files[package.SIGNATURE].decode()}")
    if ready.left_out:
        print_message(f"these files are left out, because they do not belong to a package: {', '.join(ready.left_out)}")
    if not ready.package.golden:
        print_message("there is no golden.jsonl: no score of this version is checked before it is served")
    if ready.package.golden and not ready.onnxruntime_version:
        cause = "the model runs on a server" if ready.remote else "ONNX Runtime is not installed"
        print_message(f"{cause}: the golden examples were not run")
    return ready


@contextmanager
def _print_gaps(folder: Path) -> Iterator[None]:
    """If the `with` block raises Underivable or MissingScores, print what the user must complete, and exit with code 3.

    For Underivable (an incomplete signature), the draft of the signature is printed on stdout, and its gaps are printed on
    stderr. For MissingScores, the golden examples with the model's scores are printed on stdout.
    """
    from model_registry.onnx_tools.derive_signature import Underivable
    from model_registry.onnx_tools.prepare_package import MissingScores

    try:
        yield
    except MissingScores as error:
        if not error.lines:
            raise
        print_message(f"error: {error}")
        print_message("hint: stdout has its lines with the model's scores; if they are correct, push with --accept")
        print_result(False, None, error.lines.rstrip())
        raise typer.Exit(error.exit_code) from None
    except Underivable as error:
        print_message(f"error: {folder} has no signature.json, and the model does not state all of it")
        for doubt in error.gaps:
            print_message(f"  {doubt}")
        print_message(f'hint: save the draft on stdout as {folder / "signature.json"}, and complete every "FILL IN"')
        print_result(False, None, error.skeleton)
        raise typer.Exit(error.exit_code) from None


def _base(ctx: typer.Context, text: str) -> "BaseImage":
    from model_registry.container_image.build import BaseImage, open_base

    if text == "scratch":
        return BaseImage()
    store, target = open_repository(ctx, text)
    return open_base(store, champion_of(store, target))


def _annotations(pairs: list[str], **options: str) -> dict[str, str]:
    """Return the annotations from `--annotation KEY=VALUE`, and from options that set an OCI annotation (such as `--licenses`).

    Raises BadReference for a malformed pair or a reserved key.
    """
    annotations = {f"org.opencontainers.image.{key}": value for key, value in options.items() if value}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals or key.startswith("io.scorestream."):
            fault = f"--annotation {pair} is not KEY=VALUE, or its key begins with io.scorestream., which is reserved"
            raise BadReference(fault, "write for instance --annotation org.example.auc=0.91")
        annotations[key] = value
    return annotations


def _created() -> datetime | None:
    """Return the time in the environment variable SOURCE_DATE_EPOCH (reproducible-builds.org); None if it is not set."""
    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    try:
        return datetime.fromtimestamp(int(text), UTC) if text else None
    except (ValueError, OverflowError, OSError):
        fault = f"SOURCE_DATE_EPOCH is {text!r}, which is not a valid time"
        raise BadReference(fault, "set it to a whole number of seconds since 1970, or unset it") from None
