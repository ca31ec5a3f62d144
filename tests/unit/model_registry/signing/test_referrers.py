"""Referrers of a manifest: listed under a tag or by the store, and verified before use."""

import threading

import msgspec
import pytest

from model_registry.errors import Conflict, Corrupt, NotFound, Refused
from model_registry.oci import digests, manifest
from model_registry.oci.manifest import Descriptor, Manifest
from model_registry.signing import bundle, referrers, signatures
from model_registry.stores.oci_layout import LayoutStore
from tests.conformance.store import put_manifest
from tests.unit.model_registry.keyring import NOW, ONE, ApiStore, LyingStore, rewritten, trusted, version

TYPE = "application/x.test"


@pytest.fixture
def digest(store: LayoutStore) -> str:
    return version(store)


def read(store: LayoutStore, digest: str) -> list[str]:
    """Return the digests of the readable referrers."""
    return [referrer.digest for referrer, parsed in referrers.read(store, digest, TYPE) if isinstance(parsed, Manifest)]


def test_attached_referrers_are_listed_under_the_tag(store: LayoutStore, digest: str) -> None:
    assert referrers.listed(store, digest) == []
    pushed = [referrers.attach(store, digest, TYPE, note, {"note": "x"}).digest for note in (b"one", b"two")]
    assert read(store, digest) == pushed
    referrers.attach(store, digest, TYPE, b"two", {"note": "x"})  # attached again, it is listed once
    index = manifest.parse_index(store.manifest(store.resolve(f"sha256-{digest.removeprefix('sha256:')}").digest))
    assert [(entry.artifact_type, entry.annotations) for entry in index.manifests] == [(TYPE, {"note": "x"})] * 2
    parsed = manifest.parse(store.manifest(pushed[0]))
    assert (parsed.artifact_type, parsed.subject and parsed.subject.digest) == (TYPE, digest)
    assert parsed.config.media_type == "application/vnd.oci.empty.v1+json"


def test_a_store_with_the_api_gets_no_tag(store: LayoutStore) -> None:
    api = ApiStore(store._path)
    digest = version(api)
    pushed = referrers.attach(api, digest, TYPE, b"one", {})
    assert read(api, digest) == [pushed.digest]
    assert api.tags() == []


def test_entries_of_others_are_unchanged(store: LayoutStore, digest: str) -> None:
    foreign = put_manifest(store, "foreign")
    entry = {"mediaType": foreign.media_type, "digest": foreign.digest, "size": foreign.size, "urls": ["https://example.org"]}
    document = {"schemaVersion": 2, "mediaType": manifest.INDEX_TYPE, "manifests": [entry], "annotations": {"by": "others"}}
    tag = referrers.fallback_tag(digest)
    store.move_tags({tag: store.push_manifest(manifest.encode(document))}, expect={})
    referrers.attach(store, digest, TYPE, b"one", {})
    after = msgspec.json.decode(store.manifest(store.resolve(tag).digest))
    assert after["annotations"] == {"by": "others"}
    assert entry in after["manifests"]
    assert len(after["manifests"]) == 2


def test_concurrent_attachments_are_all_listed(store: LayoutStore, digest: str) -> None:
    notes = [b"%d" % number for number in range(8)]
    threads = [threading.Thread(target=referrers.attach, args=(store, digest, TYPE, note, {})) for note in notes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read(store, digest)) == len(notes)


def test_a_list_that_always_changes_is_a_conflict(store: LayoutStore, digest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def conflict(*_: object, **__: object) -> None:
        raise Conflict("another client was faster")

    monkeypatch.setattr(store, "move_tags", conflict)
    with pytest.raises(Conflict):
        referrers.attach(store, digest, TYPE, b"one", {})


def lies(store: LayoutStore, digest: str) -> dict[str, Descriptor]:
    """Return misleading entries of a list of referrers."""
    valid_entry = referrers.attach(store, digest, TYPE, b"one", {})
    other = referrers.attach(store, put_manifest(store, "another").digest, TYPE, b"two", {})
    absent = digests.from_bytes(b"absent")
    return {
        "of another version": other,
        "of nothing": rewritten(store, valid_entry, subject=None),
        "absent": msgspec.structs.replace(valid_entry, digest=absent),
        "no manifest": msgspec.structs.replace(
            valid_entry, digest=manifest.parse(store.manifest(valid_entry.digest)).layers[0].digest
        ),
        "no digest": msgspec.structs.replace(valid_entry, digest="sha256:../../../etc/passwd"),
        "another type, listed as this one": msgspec.structs.replace(
            rewritten(store, valid_entry, artifactType="x/y"), artifact_type=TYPE
        ),
    }


def test_misleading_entries_of_a_list_are_ignored(store: LayoutStore, digest: str) -> None:
    entries = lies(store, digest)
    for lie in entries.values():
        assert read(LyingStore(store._path, [lie]), digest) == []
    valid_entry = referrers.attach(store, digest, TYPE, b"one", {})
    assert read(LyingStore(store._path, [*entries.values(), valid_entry]), digest) == [valid_entry.digest]


def test_a_signature_that_a_misleading_list_names_for_another_version_does_not_count(store: LayoutStore) -> None:
    first, second = version(store, "one"), version(store, "two")
    signatures.sign(store, first, ONE, NOW)
    liar = LyingStore(store._path, referrers.listed(store, first))
    with pytest.raises(Refused, match="does not name it as its subject"):
        signatures.verify(liar, second, trusted(ONE), NOW)


@pytest.mark.parametrize("content", [b"", b"{}", b"noise"])
def test_a_damaged_list_is_corrupt(store: LayoutStore, digest: str, content: bytes) -> None:
    referrers.attach(store, digest, TYPE, b"one", {})
    store._blob_path(store.resolve(referrers.fallback_tag(digest)).digest).write_bytes(content)
    with pytest.raises(Corrupt):
        referrers.listed(store, digest)
    store.move_tags({referrers.fallback_tag(digest): put_manifest(store, "no list")}, expect={})
    with pytest.raises(Corrupt, match="not a valid document"):
        referrers.listed(store, digest)


@pytest.mark.parametrize("listed_as", [None, "", manifest.EMPTY_TYPE])
def test_the_manifest_of_an_entry_without_a_type_is_read(store: LayoutStore, digest: str, listed_as: str | None) -> None:
    """Registries that go by the config's media type list artifacts as the empty type."""
    valid_entry = referrers.attach(store, digest, TYPE, b"one", {})
    assert read(LyingStore(store._path, [msgspec.structs.replace(valid_entry, artifact_type=listed_as)]), digest) == [
        valid_entry.digest
    ]


class Counting(LyingStore):
    """A store that counts the requested manifests."""

    requests = 0

    def manifest(self, digest: str) -> bytes:
        self.requests += 1
        return super().manifest(digest)


def test_a_huge_list_is_read_up_to_a_limit(store: LayoutStore, digest: str) -> None:
    absent = Descriptor(media_type=manifest.MANIFEST_TYPE, digest=digests.from_bytes(b"absent"), size=1, artifact_type=TYPE)
    others = [msgspec.structs.replace(absent, artifact_type="x/y")] * 10_000
    counting = Counting(store._path, others + [absent] * 10_000)
    *entries, (_, last) = referrers.read(counting, digest, TYPE)
    assert len(entries) == counting.requests == referrers.MAX_READ
    assert all(isinstance(parsed, NotFound) for _, parsed in entries)
    assert "only 256 were read" in str(last)


def test_a_list_of_many_reads_no_more_than_the_first_good_signature(store: LayoutStore, digest: str) -> None:
    signatures.sign(store, digest, ONE, NOW)
    counting = Counting(store._path, referrers.listed(store, digest) * 100)
    next(signatures.collect(counting, digest))
    assert counting.requests == 1


def test_the_type_may_be_in_the_config_only(store: LayoutStore, digest: str) -> None:
    """Older clients write no artifactType; then the config's media type says it (image-spec, "artifact usage")."""
    valid_entry = referrers.attach(store, digest, bundle.MEDIA_TYPE, b"one", {})
    document = msgspec.json.decode(store.manifest(valid_entry.digest))
    document["config"]["mediaType"] = document.pop("artifactType")
    old = store.push_manifest(manifest.encode(document))
    liar = LyingStore(store._path, [old])
    assert [entries.digest for entries, _ in referrers.read(liar, digest, bundle.MEDIA_TYPE)] == [old.digest]
