"""The verb `push`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from model_registry.commands.options import TIMEOUT_SECONDS, CaFile, Json, PlainHttp, Ref, Timeout

MountFrom = Annotated[
    list[str] | None,
    typer.Option(metavar="REPO", help="In the same registry: what it holds is not sent again. Repeatable.", show_default=False),
]


def push(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="model.onnx, signature.json, golden.jsonl, README.md.")],
    ref: Ref,
    mount_from: MountFrom = None,
    json: Json = False,
    plain_http: PlainHttp = False,
    ca_file: CaFile = None,
    timeout: Timeout = TIMEOUT_SECONDS,
) -> None:
    """Store a folder as a version. Name and version come from REF. SOURCE_DATE_EPOCH, if set, is recorded as its time."""
    from model_registry import package
    from model_registry.commands import options, output

    with output.bars() as progress:
        store, target = options.open_repository(
            ref, plain_http, ca_file, timeout, tag=True, progress=progress, mount_from=mount_from or ()
        )
        pushed = package.push(store, folder, target.name, str(target.tag), created=_created())
    value = {"name": target.name, "version": target.tag, "digest": pushed.digest}
    output.show(json, value, f"{target.name}:{target.tag}@{pushed.digest}")


def _created() -> Any:
    """The time in SOURCE_DATE_EPOCH (reproducible-builds.org), if that is set."""
    import os
    from datetime import UTC, datetime

    from model_registry.errors import BadReference

    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    try:
        return datetime.fromtimestamp(int(text), UTC) if text else None
    except (ValueError, OverflowError, OSError):
        raise BadReference(f"SOURCE_DATE_EPOCH is {text!r}", "it must be seconds since 1970, or unset") from None
