"""Attestations read from a folder registry: each once, what is new at the next look, and what was known while it is away."""

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
    """Counts the blobs that are read."""

    reads = 0

    def blob(self, content: Descriptor) -> Iterator[bytes]:
        self.reads += 1
        return super().blob(content)


def looked(reader: AttestationReader, minutes: int = 0) -> AttestationLibrary:
    *_, last = reader.poll(DAY + timedelta(minutes=minutes))
    return last


def of(library: AttestationLibrary, number: int) -> VersionAttestations:
    return next(each for each in library.versions if each.version == trained.version(number))


@pytest.fixture
def made(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


@pytest.fixture
def store(made: Runs) -> Counted:
    return Counted(made.folder / "registry" / "model")


def test_documents_are_read_once_and_new_ones_at_the_next_look(made: Runs, store: Counted) -> None:
    _, digest = made.run(0)
    reader = AttestationReader(store, made.trusted)
    found = of(looked(reader), 0)
    assert [each.name for each in found.statements] == ["provenance", "evaluation", "comparison"]
    assert {each.key_id for each in found.statements} == {"training"}
    assert found.comparison is not None
    assert found.comparison.document is not None
    assert found.comparison.document.verdict == "passed"
    reads = store.reads
    assert of(looked(reader), 0) is found
    assert store.reads == reads
    again = trained.comparison(0, digest, verdict="refused", because="judged again")
    made.attest(digest, COMPARISON, again, minutes=1)
    newer = of(looked(reader), 0).comparison
    assert newer is not None
    assert newer.document is not None
    assert (newer.document.because, newer.others) == ("judged again", 1)
    made.push(1)
    assert [each.version for each in looked(reader).versions] == [trained.version(1), trained.version(0)]


def test_a_claim_never_takes_the_place_of_what_a_trusted_key_signed(made: Runs, store: Counted) -> None:
    _, digest = made.run(0, change=-0.0061)
    made.attest(digest, COMPARISON, trained.comparison(0, digest, verdict="passed"), made.stranger, minutes=1)
    found = of(looked(AttestationReader(store, made.trusted)), 0).comparison
    assert found is not None
    assert found.document is not None
    assert (found.document.verdict, found.key_id, found.others) == ("refused", "training", 1)


def test_without_trusted_keys_everything_is_a_claim(made: Runs, store: Counted) -> None:
    made.run(0)
    found = of(looked(AttestationReader(store, [])), 0)
    assert [(each.verified, each.unverified) for each in found.statements] == [(False, "no trusted key signed it")] * 3


def test_a_key_that_came_to_its_end_verifies_nothing_any_more(made: Runs, store: Counted) -> None:
    made.run(0)
    reader = AttestationReader(store, [TrustedKey("training", made.key.public(), DAY + timedelta(minutes=5))])
    assert all(each.verified for each in of(looked(reader), 0).statements)
    late = of(looked(reader, minutes=5), 0).statements
    assert not any(each.verified for each in late)
    assert "trusted until" in late[0].unverified


def test_a_document_of_the_wrong_shape_is_told(made: Runs, store: Counted) -> None:
    digest = made.push(0)
    wrong: dict[str, Any] = {"verdict": "passed", "challenger": {}, "difference": {"value": "much", "low": 0, "high": 1}}
    made.claim(digest, COMPARISON, wrong)
    found = of(looked(AttestationReader(store, made.trusted)), 0).comparison
    assert found is not None
    assert found.document is None
    assert found.fault == "Expected `float`, got `str` - at `$.difference.value`"


def test_what_was_read_stays_while_the_registry_is_away(made: Runs, store: Counted) -> None:
    made.run(0)
    reader = AttestationReader(store, made.trusted)
    before = looked(reader)
    there, away = made.folder / "registry", made.folder / "away"
    there.rename(away)
    with pytest.raises(Unreachable):
        looked(reader)
    away.rename(there)
    assert looked(reader) == before


def test_a_damaged_list_is_told_of_its_version_alone(made: Runs, store: Counted) -> None:
    _, digest = made.run(0)
    made.run(1)
    blob = b'{"schemaVersion": 2, "manifests": 7}'
    listed = store.resolve(f"sha256-{digest[7:]}").digest
    (made.folder / "registry" / "model" / "blobs" / "sha256" / listed[7:]).write_bytes(blob)
    library = looked(AttestationReader(store, made.trusted))
    assert of(library, 0).fault
    assert of(library, 1).statements


def test_a_version_that_was_deleted_is_no_longer_shown(made: Runs, store: Counted) -> None:
    made.push(0)
    reader = AttestationReader(store, made.trusted)
    assert looked(reader).versions
    shutil.rmtree(made.folder / "registry")
    made.push(1)
    assert [each.version for each in looked(reader).versions] == [trained.version(1)]
    empty = AttestationReader(LayoutStore(made.folder / "nowhere"), [])
    with pytest.raises(RegistryError):
        looked(empty)


def test_older_versions_are_left_out_and_those_between_take_turns(made: Runs, store: Counted) -> None:
    count = 2 * RECENT + 3
    content = put_manifest(store, "one")
    for number in range(count):
        store.move_tags({trained.version(number): content}, expect={})
    reader = AttestationReader(store, made.trusted, most=count - 1)
    library = looked(reader)
    assert (len(library.versions), library.left_out, library.read) == (count - 1, 1, True)
    made.attest(content.digest, "evaluation", trained.evaluation())
    seen = [sum(bool(each.statements) for each in looked(reader).versions) for _ in range(2)]
    assert RECENT < seen[0] < seen[1] == count - 1


def test_runs_of_one_day_come_by_when_they_were_attested(made: Runs, store: Counted) -> None:
    digest = made.push(0)
    day = trained.version(0)[:8]
    for minutes, name in ((9, "a" * 12), (5, "f" * 12)):
        other = put_manifest(store, name)
        store.move_tags({f"{day}-{name}": other}, expect={})
        made.attest(other.digest, "evaluation", trained.evaluation(), minutes=minutes)
        made.attest(other.digest, "evaluation", trained.evaluation(0.5), minutes=100 - minutes)
    junk = {manifest.CREATED: "yesterday"}
    referrers.attach(store, digest, bundle.MEDIA_TYPE, b"{}", junk)
    library = looked(AttestationReader(store, made.trusted))
    assert [each.version for each in library.versions] == [f"{day}-{'a' * 12}", f"{day}-{'f' * 12}", trained.version(0)]
    assert [each.attested for each in library.versions] == [DAY + timedelta(minutes=9), DAY + timedelta(minutes=5), None]


def test_runs_come_newest_first_and_before_other_versions() -> None:
    there = ["1.0.0", "20260301-aaaaaaaaaaaa", "20260401-000000000000", "2.0.0", "20260301-ffffffffffff-x"]
    assert newest_first(there) == [
        "20260401-000000000000",
        "20260301-aaaaaaaaaaaa",
        "20260301-ffffffffffff-x",
        "2.0.0",
        "1.0.0",
    ]
