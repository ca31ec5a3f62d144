"""A snapshot as an artifact: same bytes, same digest. It is read back byte for byte, and hostile contents are refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from model_registry.channels import retention
from model_registry.channels.retention import RetentionRules
from model_registry.errors import Conflict, Corrupt, NotFound, Refused, Unreachable
from model_registry.oci import digests, manifest
from model_registry.oci.manifest import Descriptor
from model_registry.signing import referrers
from model_registry.stores.oci_layout import LayoutStore
from tests.support.publishing import copied, records, snapshot
from tests.unit.model_registry.conftest import MakePackage, make_package, promote, push_versions, store
from training.snapshot import dataset
from training.snapshot.dataset import DATASET_TYPE
from training.snapshot.files import MANIFEST, Copied, verified

__all__ = ["copied", "make_package", "records", "store"]


@pytest.fixture
def versions(store: LayoutStore, make_package: MakePackage) -> dict[str, str]:
    return push_versions(store, make_package, "1.0.0", "2.0.0")


def blobs(store: LayoutStore) -> set[str]:
    return {path.name for path in (store._path / "blobs" / "sha256").iterdir()}


def test_a_snapshot_is_read_back_byte_for_byte_and_stored_once(
    store: LayoutStore, versions: dict[str, str], records: Path, copied: Copied, tmp_path: Path
) -> None:
    artifact = dataset.push(store, versions["1.0.0"], records, copied)
    stored = blobs(store)
    (records / "events/flights/0.parquet").unlink()
    assert dataset.push(store, versions["1.0.0"], records, copied) == artifact, "no file is read for stored content"
    assert blobs(store) == stored
    assert dataset.of_version(store, versions["1.0.0"]) == artifact
    assert dataset.pull(store, artifact, tmp_path / "back") == copied
    assert verified(tmp_path / "back", copied.frozen) == copied
    assert sorted(path.relative_to(tmp_path / "back").as_posix() for path in (tmp_path / "back").rglob("*.*")) == sorted(
        [*copied.files, MANIFEST]
    )
    with pytest.raises(NotFound, match="has no dataset"):
        dataset.of_version(store, versions["2.0.0"])
    with pytest.raises(Refused, match="exists already"):
        dataset.pull(store, artifact, tmp_path / "back")


def test_the_same_snapshot_has_the_same_digest_in_another_store_and_the_same_layers_for_two_versions(
    store: LayoutStore, versions: dict[str, str], records: Path, copied: Copied, tmp_path: Path, make_package: MakePackage
) -> None:
    artifact = dataset.push(store, versions["1.0.0"], records, copied)
    other = LayoutStore(tmp_path / "elsewhere")
    (tmp_path / "again").mkdir()
    digest = push_versions(other, lambda name, **more: make_package(f"again/{name}", **more), "1.0.0")["1.0.0"]
    assert digest == versions["1.0.0"]
    assert dataset.push(other, digest, tmp_path / "again-records", snapshot(tmp_path / "again-records")) == artifact
    blobs_before = blobs(store)
    of_second_version = dataset.push(store, versions["2.0.0"], records, copied)
    assert of_second_version != artifact
    assert manifest.parse(store.manifest(of_second_version)).layers == manifest.parse(store.manifest(artifact)).layers
    assert len(blobs(store) - blobs_before) == 2, "its manifest, and the list of referrers of the version"


def test_a_file_that_changed_since_it_was_copied_is_not_stored(
    store: LayoutStore, versions: dict[str, str], records: Path, copied: Copied
) -> None:
    (records / "events/flights/0.parquet").write_bytes(b"1" * 5_000)
    with pytest.raises(Corrupt, match="has digest"):
        dataset.push(store, versions["1.0.0"], records, copied)
    with pytest.raises(NotFound):
        dataset.of_version(store, versions["1.0.0"])
    with pytest.raises(Corrupt, match="describes another snapshot"):
        dataset.push(store, versions["1.0.0"], records, msgspec.structs.replace(copied, digest="sha256:x"))
    (records / "events/flights/0.parquet").unlink()
    with pytest.raises(Unreachable, match="snapshot"):
        dataset.push(store, versions["1.0.0"], records, copied)
    with pytest.raises(NotFound):
        dataset.push(store, f"sha256:{9:064x}", records, copied)


def test_a_damaged_blob_leaves_nothing_behind(
    store: LayoutStore, versions: dict[str, str], records: Path, copied: Copied, tmp_path: Path
) -> None:
    artifact = dataset.push(store, versions["1.0.0"], records, copied)
    blob = store._path / "blobs" / "sha256" / copied.files["labels/outcomes/0.parquet"].sha256
    blob.write_bytes(b"x" * blob.stat().st_size)
    (tmp_path / "empty").mkdir()
    with pytest.raises(Corrupt, match="has digest"):
        dataset.pull(store, artifact, tmp_path / "empty" / "back")
    assert list((tmp_path / "empty").iterdir()) == []
    with pytest.raises(Refused, match="the limit is 100 bytes"):
        dataset.pull(store, artifact, tmp_path / "empty" / "back", max_bytes=100)


def layer(store: LayoutStore, path: str, content: bytes = b"x", **changes: Any) -> Descriptor:
    """Store a layer and return its descriptor with changes."""
    described = manifest.describe_content("application/x", content)
    with (store._path / "blobs" / "sha256" / digests.hex_digits(described.digest)).open("wb") as file:
        file.write(content)
    return msgspec.structs.replace(described, annotations={manifest.TITLE: path}, **changes)


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("../outside.parquet", "but a dataset cannot contain a file with this name"),
        ("/etc/passwd", "but a dataset cannot contain a file with this name"),
        ("events/../0.parquet", "leads out of the folder"),
        ("events/flights/0.parquet/x", "but a dataset cannot contain a file with this name"),
        ("events/flights/0.exe", "but a dataset cannot contain a file with this name"),
        ("events/FLIGHTS/0.parquet", "cannot exist beside"),
        ("", "leads out of the folder"),
        ("events/more/0.parquet", "does not match the files"),
        (MANIFEST, "two files with the same name"),
    ],
)
def test_files_that_no_dataset_has_are_refused(
    store: LayoutStore, versions: dict[str, str], records: Path, copied: Copied, tmp_path: Path, path: str, fault: str
) -> None:
    artifact = manifest.parse(store.manifest(dataset.push(store, versions["1.0.0"], records, copied)))
    hostile = referrers.build(store, versions["1.0.0"], DATASET_TYPE, (*artifact.layers, layer(store, path)), {})
    (tmp_path / "empty").mkdir()
    with pytest.raises(Corrupt, match=fault):
        dataset.pull(store, referrers.refer(store, hostile).digest, tmp_path / "empty" / "back")
    assert list((tmp_path / "empty").iterdir()) == []


def test_contradicting_manifests_are_refused(
    store: LayoutStore, versions: dict[str, str], records: Path, copied: Copied, tmp_path: Path
) -> None:
    digest = versions["1.0.0"]
    artifact = manifest.parse(store.manifest(dataset.push(store, digest, records, copied)))
    described, files = (
        [layer for layer in artifact.layers if layer.annotations[manifest.TITLE] == MANIFEST],
        artifact.layers[:-1],
    )
    assert len(described) == 1
    renamed = msgspec.structs.replace(copied, digest=f"sha256:{1:064x}")
    manifests = {
        "has no file manifest": files,
        "not a valid document": (*files, layer(store, MANIFEST, b"{")),
        "does not match the files": (*files, layer(store, MANIFEST, msgspec.json.encode(renamed))),
        "is stored with 1 bytes": (*files, layer(store, MANIFEST, b"1", size=2)),
        "or this file has more than": (*files, layer(store, MANIFEST, b"2", size=dataset.MAX_MANIFEST + 1)),
    }
    for fault, layers in manifests.items():
        pushed = referrers.refer(store, referrers.build(store, digest, DATASET_TYPE, layers, {}))
        with pytest.raises(Corrupt, match=fault):
            dataset.pull(store, pushed.digest, tmp_path / "back")
    with pytest.raises(Corrupt, match="not a dataset"):
        dataset.pull(store, digest, tmp_path / "back")


def test_too_many_files_are_refused_before_any_is_stored(
    store: LayoutStore, versions: dict[str, str], records: Path, copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset, "MAX_FILES", 3)
    with pytest.raises(Refused, match="the limit is 3 files") as refused:
        dataset.push(store, versions["1.0.0"], records, copied)
    assert refused.value.hint == "set snapshot.keep: false"


def test_a_dataset_that_is_never_listed_is_an_error(
    store: LayoutStore, versions: dict[str, str], records: Path, copied: Copied
) -> None:
    class Forgetful(LayoutStore):
        """A store in which others overwrite the list of referrers each time."""

        def move_tags(self, to: Mapping[str, Descriptor], *, expect: Mapping[str, str | None]) -> None:
            """Store nothing."""

    with pytest.raises(Conflict, match="other writers overwrote its list"):
        dataset.push(Forgetful(store._path), versions["1.0.0"], records, copied)


def test_a_dataset_is_retained_and_deleted_with_its_version(
    store: LayoutStore, versions: dict[str, str], records: Path, copied: Copied, tmp_path: Path
) -> None:
    retained_artifact = dataset.push(store, versions["2.0.0"], records, copied)
    other_snapshot = snapshot(tmp_path / "theirs", b"theirs")
    removed_artifact = dataset.push(store, versions["1.0.0"], tmp_path / "theirs", other_snapshot)
    for version in ("1.0.0", "2.0.0"):
        promote(store, version)
    repository_snapshot = retention.read_repository(store)
    deletions = retention.manifests_to_delete(store, retention.plan_removal(repository_snapshot, RetentionRules(revisions=1)))
    store.delete(deletions, expect=repository_snapshot.tags, grace_seconds=0)
    assert not {digests.hex_digits(removed_artifact), *(file.sha256 for file in other_snapshot.files.values())} & blobs(store)
    assert dataset.pull(store, retained_artifact, tmp_path / "back") == copied
