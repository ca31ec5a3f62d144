"""Attestations from a folder registry: read once, updated at the next poll, and kept while it is unavailable."""

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from model_registry.errors import RegistryError, Unreachable
from model_registry.oci import manifest
from model_registry.oci.manifest import Descriptor
from model_registry.signing import bundle, referrers
from model_registry.signing.predicates import COMPARISON
from model_registry.signing.signatures import TrustedKey
from model_registry.stores.oci_layout import LayoutStore
from scorer.console.training.attestations import AttestationLibrary, VersionAttestations
from scorer.console.training.feed import RECENT, AttestationReader, newest_first
from tests.conformance.store import put_manifest
from tests.support import trained
from tests.support.trained import DAY, Runs


class Counted(LayoutStore):
    """A registry that counts the blobs that are read."""

    reads = 0

    def blob(self, content: Descriptor) -> Iterator[bytes]:
        self.reads += 1
        return super().blob(content)


def poll_library(reader: AttestationReader, minutes: int = 0) -> AttestationLibrary:
    *_, newest = reader.poll(DAY + timedelta(minutes=minutes))
    return newest


def version_of(library: AttestationLibrary, number: int) -> VersionAttestations:
    return next(version for version in library.versions if version.version == trained.version(number))


@pytest.fixture
def repository(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


@pytest.fixture
def store(repository: Runs) -> Counted:
    return Counted(repository.folder / "registry" / "model")


def test_documents_are_read_once_and_new_ones_at_the_next_poll(repository: Runs, store: Counted) -> None:
    _, digest = repository.run(0)
    reader = AttestationReader(store, repository.trusted)
    attestations = version_of(poll_library(reader), 0)
    assert [entry.name for entry in attestations.statements] == ["provenance", "evaluation", "comparison"]
    assert {entry.key_id for entry in attestations.statements} == {"training"}
    assert attestations.comparison is not None
    assert attestations.comparison.document is not None
    assert attestations.comparison.document.verdict == "passed"
    reads = store.reads
    assert version_of(poll_library(reader), 0) is attestations
    assert store.reads == reads
    later_comparison = trained.comparison(0, digest, verdict="refused", because="judged again")
    repository.attest(digest, COMPARISON, later_comparison, minutes=1)
    newer = version_of(poll_library(reader), 0).comparison
    assert newer is not None
    assert newer.document is not None
    assert (newer.document.because, newer.others) == ("judged again", 1)
    repository.push(1)
    assert [entry.version for entry in poll_library(reader).versions] == [trained.version(1), trained.version(0)]


def test_claim_never_replaces_a_signed_document(repository: Runs, store: Counted) -> None:
    _, digest = repository.run(0, change=-0.0061)
    repository.attest(digest, COMPARISON, trained.comparison(0, digest, verdict="passed"), repository.stranger, minutes=1)
    document = version_of(poll_library(AttestationReader(store, repository.trusted)), 0).comparison
    assert document is not None
    assert document.document is not None
    assert (document.document.verdict, document.key_id, document.others) == ("refused", "training", 1)


def test_without_trusted_keys_everything_is_a_claim(repository: Runs, store: Counted) -> None:
    repository.run(0)
    document = version_of(poll_library(AttestationReader(store, [])), 0)
    assert [(statement.verified, statement.unverified) for statement in document.statements] == [
        (False, "the signature is not from a trusted key")
    ] * 3


def test_expired_key_verifies_nothing(repository: Runs, store: Counted) -> None:
    repository.run(0)
    reader = AttestationReader(store, [TrustedKey("training", repository.key.public(), DAY + timedelta(minutes=5))])
    assert all(statement.verified for statement in version_of(poll_library(reader), 0).statements)
    late = version_of(poll_library(reader, minutes=5), 0).statements
    assert not any(statement.verified for statement in late)
    assert "trusted until" in late[0].unverified


def test_document_of_the_wrong_shape_has_a_fault(repository: Runs, store: Counted) -> None:
    digest = repository.push(0)
    wrong: dict[str, Any] = {"verdict": "passed", "challenger": {}, "difference": {"value": "much", "low": 0, "high": 1}}
    repository.claim(digest, COMPARISON, wrong)
    document = version_of(poll_library(AttestationReader(store, repository.trusted)), 0).comparison
    assert document is not None
    assert document.document is None
    assert document.fault == "Expected `float`, got `str` - at `$.difference.value`"


def test_read_versions_stay_while_the_registry_is_unavailable(repository: Runs, store: Counted) -> None:
    repository.run(0)
    reader = AttestationReader(store, repository.trusted)
    before = poll_library(reader)
    registry, renamed = repository.folder / "registry", repository.folder / "renamed"
    registry.rename(renamed)
    with pytest.raises(Unreachable):
        poll_library(reader)
    renamed.rename(registry)
    assert poll_library(reader) == before


def test_damaged_referrers_are_a_fault_of_their_version_only(repository: Runs, store: Counted) -> None:
    _, digest = repository.run(0)
    repository.run(1)
    blob = b'{"schemaVersion": 2, "manifests": 7}'
    listed = store.resolve(f"sha256-{digest[7:]}").digest
    (repository.folder / "registry" / "model" / "blobs" / "sha256" / listed[7:]).write_bytes(blob)
    library = poll_library(AttestationReader(store, repository.trusted))
    assert version_of(library, 0).fault
    assert version_of(library, 1).statements


def test_deleted_version_is_removed(repository: Runs, store: Counted) -> None:
    repository.push(0)
    reader = AttestationReader(store, repository.trusted)
    assert poll_library(reader).versions
    shutil.rmtree(repository.folder / "registry")
    repository.push(1)
    assert [version.version for version in poll_library(reader).versions] == [trained.version(1)]
    empty = AttestationReader(LayoutStore(repository.folder / "nowhere"), [])
    with pytest.raises(RegistryError):
        poll_library(empty)


def test_oldest_versions_are_left_out_and_others_are_checked_in_turn(repository: Runs, store: Counted) -> None:
    count = 2 * RECENT + 3
    content = put_manifest(store, "one")
    for number in range(count):
        store.move_tags({trained.version(number): content}, expect={})
    reader = AttestationReader(store, repository.trusted, most=count - 1)
    library = poll_library(reader)
    assert (len(library.versions), library.left_out, library.read) == (count - 1, 1, True)
    repository.attest(content.digest, "evaluation", trained.evaluation())
    counts = [sum(bool(version.statements) for version in poll_library(reader).versions) for _ in range(2)]
    assert RECENT < counts[0] < counts[1] == count - 1


def test_runs_of_one_day_are_sorted_by_attestation_time(repository: Runs, store: Counted) -> None:
    digest = repository.push(0)
    day = trained.version(0)[:8]
    for minutes, name in ((9, "a" * 12), (5, "f" * 12)):
        content = put_manifest(store, name)
        store.move_tags({f"{day}-{name}": content}, expect={})
        repository.attest(content.digest, "evaluation", trained.evaluation(), minutes=minutes)
        repository.attest(content.digest, "evaluation", trained.evaluation(0.5), minutes=100 - minutes)
    junk = {manifest.CREATED: "yesterday"}
    referrers.attach(store, digest, bundle.MEDIA_TYPE, b"{}", junk)
    library = poll_library(AttestationReader(store, repository.trusted))
    assert [version.version for version in library.versions] == [f"{day}-{'a' * 12}", f"{day}-{'f' * 12}", trained.version(0)]
    assert [version.attested for version in library.versions] == [DAY + timedelta(minutes=9), DAY + timedelta(minutes=5), None]


def test_runs_are_sorted_newest_first_and_before_other_versions() -> None:
    registry = ["1.0.0", "20260301-aaaaaaaaaaaa", "20260401-000000000000", "2.0.0", "20260301-ffffffffffff-x"]
    assert newest_first(registry) == [
        "20260401-000000000000",
        "20260301-aaaaaaaaaaaa",
        "20260301-ffffffffffff-x",
        "2.0.0",
        "1.0.0",
    ]
