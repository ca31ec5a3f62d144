"""Store the snapshot of a version's training data as an OCI artifact: its files are layers, and the version is the subject.

When `model-registry prune` deletes a version, it also deletes the artifact. The same snapshot of the same version has the same
digest. If two versions have the same snapshot, only their small manifests differ, and they share the layers. Files of any size
are streamed.
"""

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from model_registry import atomic_files
from model_registry.errors import Conflict, Corrupt, NotFound, Refused
from model_registry.oci import digests, manifest
from model_registry.oci.build_artifact import file_opener
from model_registry.oci.manifest import Descriptor
from model_registry.signing import referrers
from model_registry.stores import parallel_transfer
from model_registry.stores.base import Store
from training.snapshot.files import MANIFEST, Copied, digest_of

DATASET_TYPE = "application/vnd.scorestream.dataset.v1"
PARQUET_TYPE = "application/vnd.apache.parquet"
JSON_TYPE = "application/json"
SNAPSHOT = "io.scorestream.dataset.snapshot"
ATTEMPTS = 5  # without a referrers API, a registry may keep only one of two concurrent additions
MAX_FILES = 5_000
MAX_BYTES = 256 << 30
MAX_MANIFEST = 8 << 20
_RECORDS = re.compile(r"(events|labels)/[A-Za-z0-9._-]{1,249}/\d{1,9}\.parquet")


def push(store: Store, digest: str, folder: Path, copied: Copied) -> str:
    """Store the files of a copied snapshot as an artifact of a version; return the digest of the artifact.

    If the store already has this artifact, nothing is written.

    Raises:
        NotFound: There is no version with this digest.
        Refused: There are too many files, or a file has a name that some systems cannot write.
        Corrupt: A file has changed since it was copied.
        Conflict: The artifact is stored but not listed, because other processes overwrote the list of the version's artifacts
            at each attempt.
        Unreachable: The store is unreachable.
    """
    with atomic_files.report_os_errors(f"the snapshot {folder}"):
        described = (folder / MANIFEST).read_bytes()
        if manifest.decode(described, Copied, str(folder / MANIFEST)) != copied:
            raise Corrupt(f"{folder / MANIFEST} describes another snapshot than {copied.digest}")
        layers = {MANIFEST: manifest.describe_content(JSON_TYPE, described)}
        for path, file in sorted(copied.files.items()):
            layers[path] = Descriptor(media_type=PARQUET_TYPE, digest=f"sha256:{file.sha256}", size=file.bytes)
        try:
            _check(layers)
        except Corrupt as error:
            raise Refused(f"the snapshot in {folder} cannot be stored: {error}", "set snapshot.keep: false") from None
        named = tuple(
            msgspec.structs.replace(layer, annotations={manifest.TITLE: path}) for path, layer in sorted(layers.items())
        )
        document = referrers.build(store, digest, DATASET_TYPE, named, {SNAPSHOT: copied.digest})
        if len(document) > manifest.MAX_BYTES:
            raise Refused(f"the snapshot in {folder} has too many files for one artifact", "set snapshot.keep: false")
        artifact_digest = digests.from_bytes(document)
        for _ in range(ATTEMPTS):
            if any(referrer.digest == artifact_digest for referrer in referrers.listed(store, digest)):
                return artifact_digest
            parallel_transfer.upload(store, [(layer, file_opener(folder / path)) for path, layer in layers.items()])
            referrers.refer(store, document)
    raise Conflict(f"the list of referrers of {digest} is continually overwritten by other processes", "run again")


def of_version(store: Store, digest: str) -> str:
    """Return the digest of a version's dataset. Raises NotFound if the version has no dataset, Unreachable."""
    for entry, parsed in referrers.read(store, digest, DATASET_TYPE):
        if isinstance(parsed, manifest.Manifest):
            return entry.digest
    hint = "the version was trained with snapshot.keep: false, or not by a run; its provenance names the training records"
    raise NotFound(f"{digest} has no dataset in {store.repository}", hint)


def pull(store: Store, digest: str, folder: Path, max_bytes: int = MAX_BYTES) -> Copied:
    """Download a dataset to a new folder, atomically, and verify every byte.

    Raises:
        NotFound: There is no dataset with this digest.
        Unreachable: The store is unreachable.
        Refused: The folder exists, or the dataset has more than `max_bytes`.
        Corrupt: The artifact is not a dataset, its files differ from its manifest, or a file name is not allowed.
    """
    parsed = manifest.parse(store.manifest(digest))
    if parsed.artifact_type != DATASET_TYPE:
        raise Corrupt(f"{digest} is an artifact of type {parsed.artifact_type or parsed.config.media_type}, not a dataset")
    layers = {layer.annotations.get(manifest.TITLE, ""): layer for layer in parsed.layers}
    if len(layers) != len(parsed.layers):
        raise Corrupt(f"the dataset {digest} has two files with the same name")
    _check(layers)
    if (total := sum(layer.size for layer in layers.values())) > max_bytes:
        raise Refused(f"the dataset {digest} has {total} bytes; the limit is {max_bytes} bytes")
    copied = _described(b"".join(store.blob(layers[MANIFEST])), layers, digest)
    with atomic_files.report_os_errors(f"the folder {folder}"), _whole(folder) as part:
        for path in layers:
            (part / path).parent.mkdir(parents=True, exist_ok=True)
        parallel_transfer.download(store, [(layer, part / path) for path, layer in layers.items()])
    return copied


def _check(layers: dict[str, Descriptor]) -> None:
    """Check the number and the names of a dataset's files, and that one of them is the snapshot's manifest. Raises Corrupt."""
    if len(layers) > MAX_FILES:
        raise Corrupt(f"the dataset has {len(layers)} files; the limit is {MAX_FILES} files")
    if MANIFEST not in layers or layers[MANIFEST].size > MAX_MANIFEST:
        raise Corrupt(f"the dataset has no file {MANIFEST}, or this file has more than {MAX_MANIFEST} bytes")
    if odd := next((path for path in layers if path != MANIFEST and not _RECORDS.fullmatch(path)), None):
        raise Corrupt(f"the dataset has the file {odd!r:.200}, but a dataset cannot contain a file with this name")
    atomic_files.check_paths(layers)


def _described(data: bytes, layers: dict[str, Descriptor], digest: str) -> Copied:
    """Parse `data`, the snapshot's manifest, and check that it has the paths, sizes and digests of `layers`. Raises Corrupt."""
    copied = manifest.decode(data, Copied, f"the {MANIFEST} of the dataset {digest}")
    named = {path: (f"sha256:{file.sha256}", file.bytes) for path, file in copied.files.items()}
    layer_files = {path: (layer.digest, layer.size) for path, layer in layers.items() if path != MANIFEST}
    if named != layer_files or digest_of(copied.files) != copied.digest:
        raise Corrupt(f"the {MANIFEST} of the dataset {digest} does not match the files of the dataset")
    return copied


@contextlib.contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder. If the `with` block ends without an error, rename it to `folder`; otherwise remove it.

    Raises Refused if `folder` exists.
    """
    if folder.exists():
        raise Refused(f"{folder} exists already", "choose a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=".", suffix=".part", dir=folder.parent))
    try:
        yield part
        part.chmod(0o755)
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    atomic_files.sync_directory(folder.parent)
