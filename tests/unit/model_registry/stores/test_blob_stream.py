"""A stream over a blob of a store: any reads and seeks give the blob's bytes, and damage is reported at the end."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_registry.errors import Corrupt
from model_registry.stores.blob_stream import BlobStream
from model_registry.stores.oci_layout import LayoutStore
from tests.conformance.store import CONTENT, described, put

SIZES = st.one_of(st.just(-1), st.integers(0, len(CONTENT)))
STEPS = st.lists(st.tuples(st.sampled_from(["read", "seek"]), SIZES), max_size=8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_reads_and_seeks_give_the_bytes_at_the_position(store: LayoutStore, steps: list[tuple[str, int]]) -> None:
    with BlobStream(store, put(store, CONTENT)) as stream:
        position = 0
        for step, size in steps:
            if step == "seek":
                position = max(size, 0)
                assert stream.seek(position) == position
                continue
            data = stream.read(size)
            assert data == CONTENT[position : position + len(data)]
            assert data or size == 0 or position == len(CONTENT)
            position += len(data)
            assert stream.tell() == position
    assert stream.seekable()


def test_a_damaged_blob_is_reported_at_its_end(store: LayoutStore) -> None:
    content = put(store, CONTENT)
    store._blob_path(content.digest).write_bytes(CONTENT[::-1])
    stream = BlobStream(store, content)
    assert len(stream.read(1 << 16)) == 1 << 16
    with pytest.raises(Corrupt):
        stream.read()


def test_an_empty_blob_has_no_bytes(store: LayoutStore) -> None:
    assert BlobStream(store, put(store, b"")).read(10) == b""
    assert described(b"").size == 0
