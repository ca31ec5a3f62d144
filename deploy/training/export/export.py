"""Write the model package of a trained model, and check that a scorer accepts the package before it is published."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from model_registry import atomic_files
from model_registry.errors import Refused
from model_registry.package import GOLDEN, MODEL, SIGNATURE, Package, field_sources, read
from model_registry.package.signature import Signature
from model_registry.package.signature_schema import parse_signature
from publisher.errors import REFUSED, Fatal
from scorer.backends.base import InferenceFailed, ModelRefused
from scorer.backends.onnx.onnx_runtime import OnnxRuntime
from scorer.decoding.json.decoder import JsonDecoder
from scorer.models.loaded_model import prepare_model
from scorer.settings import Settings
from training.export import card, examples, parity
from training.export.card import Card
from training.recipes import Fitted, contract
from training.snapshot.rows import LabelledRows
from training.snapshot.target import Target

README = "README.md"


@dataclass(frozen=True, slots=True)
class ExportedPackage:
    """A written model package that passed all checks of a scorer.

    Attributes:
        scores: (B,) or (B, n), the ONNX model's scores of the hold-out rows.
        parity: The largest difference between the scores of the ONNX model and of the trained model; None if
            they are not compared.
    """

    package: Package
    scores: NDArray[np.float64]
    parity: float | None


def export(
    source: Path,
    fitted: Fitted | None,
    hold_out: LabelledRows,
    signature: Signature,
    folder: Path,
    scorer: Settings,
    model_card: Card,
) -> ExportedPackage:
    """Write the model package of a final training to `folder` atomically, replacing an earlier package.

    Equal arguments give equal bytes.

    Args:
        source: The folder of the final training, with `model.onnx` or `package/`.
        fitted: The trained model, whose scores are compared with those of the ONNX model; None if it is not available.
        hold_out: The hold-out rows, from which the golden examples are chosen.
        signature: The signature of the rows, and of the model unless `package/` has its own.
        folder: The folder of the package.
        scorer: The settings of the scorer.
        model_card: The content of the model card.

    Raises:
        Fatal: Exit code 3 if a scorer would reject the package, if the disk is full, if a score is not finite, or if a score of
            the ONNX model differs from the score of `fitted` by more than 1e-6. The ONNX model runs by ONNX Runtime on a CPU,
            with the scorer's settings.
    """
    settings = scorer.model_copy(update={"model": scorer.model.model_copy(update={"device": "cpu", "buckets": []})})
    difference = None
    try:
        with _part(folder) as part:
            stated = _copy_model(source, part, signature)
            _check_interval(stated, hold_out.target)
            rows = replace(hold_out, tensors=contract.converted(hold_out.tensors, signature, stated))
            (part / SIGNATURE).write_bytes(msgspec.json.format(stated.to_json().encode(), indent=2) + b"\n")
            model = OnnxRuntime(settings.model).open(read(part))
            if fitted is None:
                scores = parity.scores(model.run, stated, rows.target, rows.tensors)
            else:
                scores, difference = parity.check(model.run, fitted, rows, stated)
            parity.check_shape(scores, rows.target)
            parity.check_finite(scores, rows)
            few = rows.select(examples.chosen(rows, scores, stated))
            (part / GOLDEN).write_bytes(b"".join(examples.lines(few, model.run(dict(few.tensors)), stated)))
            (part / README).write_text(card.text(model_card, difference, (part / MODEL).stat().st_size), encoding="utf-8")
            package = read(part)
            decoder = JsonDecoder(field_sources.read_by_name(stated), None, settings.input.max_event_bytes)
            prepare_model(model, decoder, package.golden, settings).model.close()
    except (Refused, ModelRefused) as error:
        hint = getattr(error, "hint", "") or "a scorer would not load this version"
        raise Fatal(f"the exported model cannot be served: {error}", hint, REFUSED) from None
    except InferenceFailed as error:
        hint = "the model must score every held-out event, in batches of any size"
        raise Fatal(f"the exported model fails: {error}", hint, REFUSED) from None
    except OSError as error:
        raise Fatal(
            f"{error.filename or folder} cannot be written: {error.strerror}",
            "check the disk space and the permissions, and run again",
            REFUSED,
        ) from None
    return ExportedPackage(replace(package, folder=folder, model_path=folder / MODEL), scores, difference)


def _copy_model(source: Path, part: Path, signature: Signature) -> Signature:
    """Copy the model of a final training to the folder `part`, and return the signature of the model.

    If `source` has a folder `package/`, it contains the model and the signature. Otherwise the signature is `signature`. Raises
    Refused if `package/` contains a folder, a link or a file name that is not printable, or if its signature is malformed.
    Raises OSError.
    """
    own_package = source / contract.PACKAGE
    if not own_package.is_dir():
        shutil.copy(source / MODEL, part / MODEL)
        return signature
    for path in sorted(own_package.iterdir()):
        if path.name in (GOLDEN, README, SIGNATURE):
            continue
        if path.is_symlink() or not path.is_file():
            raise Refused(f"package/ has {path.name!r}, which is not a file", "write plain files, without folders and links")
        if not path.name.isprintable():
            raise Refused(f"package/ has a file with the name {path.name!r}", "use names of printable characters")
        shutil.copy(path, part / path.name)
    return parse_signature((own_package / SIGNATURE).read_bytes())


def _check_interval(signature: Signature, target: Target) -> None:
    """Check that the signature of the model has the outputs of the target's interval. Raises Refused."""
    names = [output.name for output in signature.outputs]
    for name in (target.interval.low, target.interval.high) if target.interval else ():
        if name not in names:
            raise Refused(f"its signature has no output {name!r} of evaluation.interval", "add the output to the signature")


@contextmanager
def _part(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that replaces `folder` if the `with` block ends without an error."""
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    yield part
    for path in part.iterdir():
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)
    atomic_files.sync_directory(folder.parent)
