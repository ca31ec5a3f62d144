"""The verb `push`."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from model_registry.cli_common import Json, Ref, champion_of, open_repository, print_message, print_result, progress_bars
from model_registry.default_limits import DEFAULT_DOMAINS
from model_registry.errors import BadReference

MountFrom = Annotated[
    list[str] | None,
    typer.Option(metavar="REPO", help="In the same registry: what it holds is not sent again. Repeatable.", show_default=False),
]
if TYPE_CHECKING:
    from model_registry.container_image.build import BaseImage
    from model_registry.onnx_tools.prepare_package import PreparedPackage


class Device(StrEnum):
    CPU = "cpu"
    CUDA = "cuda"


def push(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="model.onnx, signature.json, golden.jsonl, README.md.")],
    ref: Ref,
    mount_from: MountFrom = None,
    image: Annotated[str, typer.Option(metavar="BASE", help="Make a container image: on a base image, or on 'scratch'.")] = "",
    annotation: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="Any number of them.")] = None,
    source: Annotated[str, typer.Option(metavar="URL", help="Where the training code is.")] = "",
    revision: Annotated[str, typer.Option(metavar="COMMIT", help="Its revision.")] = "",
    licenses: Annotated[str, typer.Option(metavar="SPDX", help="The model's licence, for instance Apache-2.0.")] = "",
    device: Annotated[list[Device] | None, typer.Option(help="The version runs there only.")] = None,
    op_domain: Annotated[list[str] | None, typer.Option(metavar="DOMAIN", help="Allow operators of this domain.")] = None,
    json: Json = False,
) -> None:
    """Store a folder as a version, once its model is safe, its signature known and its golden examples answered.

    Name and version come from REF. SOURCE_DATE_EPOCH, if set, is recorded as its time.
    """
    from model_registry import package

    with progress_bars() as progress:
        store, target = open_repository(ctx, ref, tag=True, progress=progress, mount_from=mount_from or ())
        with _explained(folder):
            ready = _prepare(folder, device or [], op_domain or [])
        stated = _annotations(annotation or [], source=source, revision=revision, licenses=licenses)
        base = _base(ctx, image) if image else None
        pushed = package.push(
            store, ready.package, target.name, str(target.tag),
            created=_created(), annotations={**ready.annotations, **stated}, more=ready.more, base=base, only=ready.files,
        )  # fmt: skip
    value: dict[str, Any] = {"name": target.name, "version": target.tag, "digest": pushed.digest}
    value |= {"golden_examples": len(ready.package.golden)}
    value |= {"ran_with_onnxruntime": ready.ran, "signature_derived": ready.derived, "left_out": ready.left_out}
    if ready.ran and not json and ready.package.golden:
        print_message(f"the model answers its golden examples ({len(ready.package.golden)})")
    print_result(json, value, f"{target.name}:{target.tag}@{pushed.digest}")


def _prepare(folder: Path, devices: Sequence[Device], op_domains: Sequence[str]) -> "PreparedPackage":
    """What is settled before the push, and what was not said on stderr."""
    from model_registry import package
    from model_registry.onnx_tools.prepare_package import prepare
    from model_registry.sandbox import run_apart

    ready = prepare(
        folder, devices=[allowed.value for allowed in devices], op_domains=(*DEFAULT_DOMAINS, *op_domains), run=run_apart
    )
    if ready.derived:
        print_message(f"the version gets the signature {ready.more[package.SIGNATURE].decode()}")
    if ready.left_out:
        print_message(f"left out, for they are no part of a package: {', '.join(ready.left_out)}")
    if not ready.package.golden:
        print_message("no golden.jsonl: nothing will compare a score of this version before it goes live")
    if ready.package.golden and not ready.ran:
        cause = "the model is for a server" if ready.remote else "ONNX Runtime is not installed here"
        print_message(f"{cause}: the golden examples were not run")
    return ready


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Where the signature or scores have to be written: as far as they are known on stdout, the rest on stderr. Ends with 3."""
    from model_registry.onnx_tools.derive_signature import Underivable
    from model_registry.onnx_tools.prepare_package import MissingScores

    try:
        yield
    except MissingScores as error:
        if not error.lines:
            raise
        print_message(f"error: {error}")
        print_message("hint: on stdout are its lines with the model's own answers; if they are right, put them in its place")
        print_message("      (redirect into another file and move that: a shell empties a file before push reads it)")
        print_result(False, None, error.lines.rstrip())
        raise typer.Exit(error.exit_code) from None
    except Underivable as error:
        print_message(f"error: {folder} has no signature.json, and the model leaves open what it must say")
        for doubt in error.todo:
            print_message(f"  {doubt}")
        print_message(f'hint: complete what is on stdout as {folder / "signature.json"}: every "FILL IN"')
        print_result(False, None, error.skeleton)
        raise typer.Exit(error.exit_code) from None


def _base(ctx: typer.Context, text: str) -> "BaseImage":
    from model_registry.container_image.build import BaseImage, open_base

    if text == "scratch":
        return BaseImage()
    store, target = open_repository(ctx, text)
    return open_base(store, champion_of(store, target))


def _annotations(pairs: list[str], **options: str) -> dict[str, str]:
    """`--annotation` and those with options of their own. Raises BadReference."""
    annotations = {f"org.opencontainers.image.{key}": value for key, value in options.items() if value}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals or key.startswith("io.scorestream."):
            raise BadReference(f"--annotation {pair}", "write KEY=VALUE, for instance --annotation org.example.auc=0.91")
        annotations[key] = value
    return annotations


def _created() -> datetime | None:
    """The time in SOURCE_DATE_EPOCH (reproducible-builds.org), if that is set."""
    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    try:
        return datetime.fromtimestamp(int(text), UTC) if text else None
    except (ValueError, OverflowError, OSError):
        raise BadReference(f"SOURCE_DATE_EPOCH is {text!r}", "it must be seconds since 1970, or unset") from None
