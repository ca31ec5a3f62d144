"""Push the version of a run. The version's name and the annotations of its manifest are the same at each attempt."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from model_registry import package
from model_registry.errors import Corrupt
from model_registry.oci.manifest import Descriptor
from model_registry.onnx_tools.prepare_package import prepare
from model_registry.stores import resolve_index
from model_registry.stores.base import Store

NOTE = "io.scorestream.training."


@dataclass(frozen=True, slots=True)
class Origin:
    """The inputs of a version, stored as annotations of its manifest.

    `dataset` and `environment` are digests (`sha256:...`). `run` is a run id of 12 hexadecimal digits.
    """

    run: str
    dataset: str
    environment: str
    seed: int
    recipe: str

    def annotations(self) -> dict[str, str]:
        """Return the inputs as annotations of the manifest, with keys that start with `NOTE`."""
        return {f"{NOTE}{name}": str(value) for name, value in asdict(self).items()}


def version_of(run: str, at: datetime) -> str:
    """Return the name of a run's version: `YYYYMMDD-<run id>`, with the UTC day of the snapshot (`at`)."""
    return f"{at.astimezone(UTC):%Y%m%d}-{run}"


def push(store: Store, folder: Path, version: str, origin: Origin) -> Descriptor:
    """Store a package folder as a version; a version that exists with equal content is accepted.

    Raises:
        Refused: `model-registry push` rejects the package, or the version exists with other content.
        Corrupt: The model is not ONNX.
        Unreachable: The store is unreachable.
    """
    ready = prepare(folder)
    notes = {**ready.annotations, **origin.annotations()}
    return package.push(store, ready.package, model_name(store), version, annotations=notes, more=ready.generated_files)


def model_name(store: Store) -> str:
    """Return the model name of a repository: the last part of its name."""
    return store.repository.rpartition("/")[2]


def origin_of(store: Store, digest: str) -> Origin | None:
    """Return the inputs that a version's manifest states, or None if it states none.

    The manifest's annotations are not signed; use `verify_lineage.py` for signed statements.

    Raises:
        NotFound: There is no version with this digest.
        Corrupt: An annotation is missing or invalid, or stored content is damaged.
        Unreachable: The store is unreachable.
    """
    notes = resolve_index.describe_version(store, digest).annotations
    values = {name: notes[f"{NOTE}{name}"] for name in Origin.__dataclass_fields__ if f"{NOTE}{name}" in notes}
    if not values:
        return None
    try:
        return Origin(values["run"], values["dataset"], values["environment"], int(values["seed"]), values["recipe"])
    except (KeyError, ValueError) as error:
        raise Corrupt(f"the annotations {NOTE}* of {digest} cannot be read: {error!r}") from None
