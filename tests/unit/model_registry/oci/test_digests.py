"""Digests: syntax, and content that is checked while it streams."""

import hashlib
import io
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_registry.errors import Corrupt
from model_registry.oci import digests


@given(st.binary(max_size=2000))
def test_digests_are_hashlib_s(data: bytes) -> None:
    expected = hashlib.sha256(data).hexdigest()
    assert digests.of_bytes(data) == f"sha256:{expected}"
    assert digests.of_stream(io.BytesIO(data)) == (f"sha256:{expected}", len(data))
    assert digests.hex_of(digests.of_bytes(data)) == expected


@given(st.text(max_size=80) | st.text("0123456789abcdef/.", min_size=60, max_size=66).map("sha256:".__add__))
def test_only_digests_become_file_names(text: str) -> None:
    if digests.is_digest(text):
        assert set(digests.hex_of(text)) <= set("0123456789abcdef")
        assert len(digests.hex_of(text)) == 64
    else:
        with pytest.raises(Corrupt):
            digests.hex_of(text)


@given(st.lists(st.binary(max_size=50), max_size=8))
def test_good_content_passes_unchanged(chunks: list[bytes]) -> None:
    data = b"".join(chunks)
    assert b"".join(digests.verified(chunks, digests.of_bytes(data), len(data), "it")) == data


@given(st.binary(max_size=50), st.binary(max_size=50))
def test_other_content_never_passes(wanted: bytes, found: bytes) -> None:
    if wanted != found:
        with pytest.raises(Corrupt, match="it "):
            list(digests.verified([found], digests.of_bytes(wanted), len(wanted), "it"))


def test_too_much_content_stops_at_once() -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b"x" * 100

    with pytest.raises(Corrupt, match="longer than the 250 bytes"):
        list(digests.verified(endless(), digests.of_bytes(b""), 250, "it"))
