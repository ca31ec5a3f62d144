"""Behaviour of every store. A store's test class derives from `StoreConformance` and creates and damages the store."""

import contextlib
import io
from abc import ABC, abstractmethod
from typing import ClassVar

import pytest

from model_registry.errors import BadReference, Conflict, Corrupt, NotFound, Unreachable
from model_registry.oci import digests, manifest
from model_registry.oci.manifest import Descriptor
from model_registry.signing import referrers
from model_registry.stores.base import Store

CONTENT = b"content " * 100_000  # several times the size of small buffers
ABSENT = digests.from_bytes(b"never stored")


def described(content: bytes) -> Descriptor:
    return Descriptor(media_type="application/octet-stream", digest=digests.from_bytes(content), size=len(content))


def put(store: Store, content: bytes) -> Descriptor:
    descriptor = described(content)
    store.push_blob(descriptor, io.BytesIO(content))
    return descriptor


def put_manifest(store: Store, note: str) -> Descriptor:
    empty = put(store, b"{}")
    return store.push_manifest(manifest.build("application/x.test", empty, (empty,), {"note": note}))


def an_index(*manifests: Descriptor) -> bytes:
    return manifest.encode(
        manifest.ImageIndex(
            schema_version=2, media_type=manifest.INDEX_TYPE, artifact_type="application/x.test", manifests=manifests
        )
    )


class StoreConformance(ABC):
    """`fresh` returns an empty repository; `damage` changes stored content without the store's knowledge.

    MENDS states whether a push replaces damaged content of another size; a store that cannot do so raises Corrupt.
    """

    MENDS: ClassVar[bool]

    @pytest.fixture
    @abstractmethod
    def fresh(self) -> Store: ...

    @abstractmethod
    def damage(self, store: Store, digest: str, content: bytes) -> None: ...

    @pytest.mark.parametrize("content", [CONTENT, b""])
    def test_a_pushed_blob_is_read_back_and_may_be_pushed_twice(self, fresh: Store, content: bytes) -> None:
        pushed = put(fresh, content)
        assert put(fresh, content) == pushed
        assert fresh.has_blob(pushed.digest)
        assert b"".join(fresh.blob(pushed)) == content

    @pytest.mark.parametrize("sent_content", [CONTENT[:-1], CONTENT + b"!", b"", CONTENT[:-1] + b"?"])
    def test_a_push_of_other_content_stores_nothing(self, fresh: Store, sent_content: bytes) -> None:
        with pytest.raises(Corrupt):
            fresh.push_blob(described(CONTENT), io.BytesIO(sent_content))
        put(fresh, b"something else")
        assert not fresh.has_blob(digests.from_bytes(CONTENT))

    def test_a_push_that_breaks_off_stores_nothing(self, fresh: Store) -> None:
        class Breaking(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                if self.tell():
                    raise ZeroDivisionError
                return super().read(min(size or 0, 1000))

        with pytest.raises(ZeroDivisionError):
            fresh.push_blob(described(CONTENT), Breaking(CONTENT))
        put(fresh, b"something else")
        assert not fresh.has_blob(digests.from_bytes(CONTENT))

    @pytest.mark.parametrize("stored", [CONTENT[:-1], CONTENT + b"!", b"", CONTENT[:-1] + b"?"])
    def test_a_damaged_blob_is_never_read_to_its_end(self, fresh: Store, stored: bytes) -> None:
        content = put(fresh, CONTENT)
        self.damage(fresh, content.digest, stored)
        with pytest.raises(Corrupt):
            b"".join(fresh.blob(content))

    def test_a_damaged_blob_is_mended_or_named_by_the_next_push(self, fresh: Store) -> None:
        content = put(fresh, CONTENT)
        self.damage(fresh, content.digest, b"?")
        with contextlib.nullcontext() if self.MENDS else pytest.raises(Corrupt, match=content.digest):
            put(fresh, CONTENT)
            assert b"".join(fresh.blob(content)) == CONTENT

    def test_a_blob_of_another_size_than_declared_is_refused(self, fresh: Store) -> None:
        content = put(fresh, CONTENT)
        wrong = Descriptor(media_type=content.media_type, digest=content.digest, size=content.size + 1)
        with pytest.raises(Corrupt):
            b"".join(fresh.blob(wrong))

    def test_absent_content_raises_not_found(self, fresh: Store) -> None:
        put_manifest(fresh, "makes the repository")
        assert not fresh.has_blob(ABSENT)
        with pytest.raises(NotFound, match=ABSENT):
            fresh.manifest(ABSENT)
        with pytest.raises(NotFound, match=ABSENT):
            b"".join(fresh.blob(Descriptor(media_type="x", digest=ABSENT, size=1)))
        with pytest.raises(NotFound, match=r"1\.0\.0"):
            fresh.resolve("1.0.0")

    @pytest.mark.parametrize("bad", ["sha256:../../etc/passwd", "sha512:00", "sha256:" + "A" * 64, "", "latest"])
    def test_an_invalid_digest_is_refused(self, fresh: Store, bad: str) -> None:
        put_manifest(fresh, "makes the repository")
        for ask in (fresh.manifest, fresh.has_blob, lambda d: list(fresh.blob(Descriptor(media_type="x", digest=d, size=1)))):
            with pytest.raises(Corrupt):
                ask(bad)

    def test_a_manifest_is_read_back_byte_for_byte(self, fresh: Store) -> None:
        empty = put(fresh, b"{}")
        data = manifest.build("application/x.test", empty, (empty,), {"note": "one"})
        pushed = fresh.push_manifest(data)
        assert fresh.manifest(pushed.digest) == data
        assert (pushed.digest, pushed.size) == (digests.from_bytes(data), len(data))

    def test_a_manifest_without_its_blobs_is_refused(self, fresh: Store) -> None:
        put(fresh, b"makes the repository")
        with pytest.raises(NotFound):
            fresh.push_manifest(manifest.build("application/x.test", described(b"absent"), (), {}))

    def test_an_index_is_read_back_and_refused_without_its_manifests(self, fresh: Store) -> None:
        first, second = put_manifest(fresh, "one"), put_manifest(fresh, "two")
        data = an_index(first, second)
        pushed = fresh.push_manifest(data)
        assert (pushed.media_type, pushed.digest, pushed.size) == (manifest.INDEX_TYPE, digests.from_bytes(data), len(data))
        fresh.move_tags({"both": pushed}, expect={"both": None})
        assert fresh.resolve("both").digest == pushed.digest
        assert fresh.manifest(pushed.digest) == data
        with pytest.raises(NotFound):
            fresh.push_manifest(an_index(first, described(b"absent")))

    @pytest.mark.parametrize("data", [b"", b"[]", b"{", b"{}", b'{"schemaVersion":2}', b"\xff"])
    def test_an_invalid_manifest_is_refused(self, fresh: Store, data: bytes) -> None:
        with pytest.raises(Corrupt):
            fresh.push_manifest(data)

    @pytest.mark.parametrize("stored", [b"", b"{}", b" " * (manifest.MAX_BYTES + 1)])
    def test_a_damaged_manifest_is_refused(self, fresh: Store, stored: bytes) -> None:
        pushed = put_manifest(fresh, "one")
        self.damage(fresh, pushed.digest, stored)
        with pytest.raises((Corrupt, Unreachable)):  # a registry that detects the damage does not return the manifest
            fresh.manifest(pushed.digest)

    def test_tags_move(self, fresh: Store) -> None:
        first, second = put_manifest(fresh, "one"), put_manifest(fresh, "two")
        fresh.move_tags({"1.0.0": first, "prod": first}, expect={"1.0.0": None, "prod": None})
        fresh.move_tags({"prod": second}, expect={"prod": first.digest})
        assert fresh.tags() == ["1.0.0", "prod"]
        assert fresh.resolve("1.0.0").digest == first.digest
        assert fresh.resolve("prod").digest == second.digest
        assert fresh.resolve("prod").size == second.size

    def test_nothing_moves_where_a_tag_is_not_as_expected(self, fresh: Store) -> None:
        first, second = put_manifest(fresh, "one"), put_manifest(fresh, "two")
        fresh.move_tags({"prod": first}, expect={})
        for expect in ({"prod": None}, {"prod": second.digest}, {"prod": first.digest, "1.0.0": first.digest}):
            with pytest.raises(Conflict):
                fresh.move_tags({"new": second, "prod": second}, expect=expect)
        assert fresh.tags() == ["prod"]
        assert fresh.resolve("prod").digest == first.digest

    def test_a_tag_names_stored_manifests_only(self, fresh: Store) -> None:
        put_manifest(fresh, "makes the repository")
        with pytest.raises(NotFound):
            fresh.move_tags({"prod": described(b"absent")}, expect={})
        assert fresh.tags() == []

    @pytest.mark.parametrize("tag", ["", "-x", "a/b", "../x", "a b", "x" * 129, "a:b", "a\n"])
    def test_an_invalid_tag_is_refused(self, fresh: Store, tag: str) -> None:
        pushed = put_manifest(fresh, "one")
        with pytest.raises(BadReference):
            fresh.move_tags({tag: pushed}, expect={})

    def test_referrers_of_a_manifest_are_listed(self, fresh: Store) -> None:
        """The store lists them, or, without a referrers API, a tag does; never both."""
        subject, other = put_manifest(fresh, "subject"), put_manifest(fresh, "other")
        assert referrers.listed(fresh, subject.digest) == []
        pushed = {referrers.attach(fresh, subject.digest, "application/x.test", b"%d" % n, {}).digest for n in range(2)}
        assert {referrer.digest for referrer in referrers.listed(fresh, subject.digest)} == pushed
        assert referrers.listed(fresh, other.digest) == []
        assert (fresh.referrers(subject.digest) is None) == (fresh.tags() != [])

    def test_the_validator_changes_with_every_move_and_with_nothing_else(self, fresh: Store) -> None:
        targets = [put_manifest(fresh, "one"), put_manifest(fresh, "two")]
        before = ""
        for target in targets * 3:
            fresh.move_tags({"prod": target}, expect={})
            now = fresh.validator("prod")
            assert now != before
            fresh.resolve("prod")
            put(fresh, b"a blob")
            assert fresh.validator("prod") == now
            before = now
