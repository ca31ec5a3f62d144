"""Records that are assembled from columns."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorer.native.byte_columns import ByteColumn
from scorer.native.librdkafka import librdkafka_plugin
from scorer.native.produce_records import RecordPiece, chosen, joined
from tests.unit.scorer.decoding.formats import scattered

LONG = 1_000_000
COUNT = 1_000_000


@pytest.mark.debian("cc")
def test_one_long_text_among_many_short_texts_takes_memory_only_once() -> None:
    """Memory for the longest text of each record would be 1 TB."""
    plugin = librdkafka_plugin()
    assert plugin is not None
    ends = np.ones(COUNT, np.int64)
    ends[0] = LONG
    texts = RecordPiece(ByteColumn(np.full(LONG, ord("x"), np.uint8), np.zeros(COUNT, np.int64), ends))
    names = chosen([b"y" * LONG, b"n"], (np.arange(COUNT) > 0).astype(np.int32))
    lengths = joined(plugin, [texts, names], COUNT).lengths()
    assert (lengths[0], set(lengths[1:].tolist())) == (2 * LONG, {2})


@pytest.mark.debian("cc")
@given(texts=st.lists(st.none() | st.binary(max_size=20), max_size=6))
def test_the_texts_of_a_piece_may_lie_in_any_order_and_with_gaps(texts: list[bytes | None]) -> None:
    plugin = librdkafka_plugin()
    assert plugin is not None
    pieces = [RecordPiece(scattered(texts)), RecordPiece(numbers=np.arange(len(texts)))]
    assert list(joined(plugin, pieces, len(texts))) == [b"%b%d" % (text or b"", at) for at, text in enumerate(texts)]


def test_the_size_of_a_piece_counts_each_text_as_often_as_it_is_used() -> None:
    piece = chosen([b"abc", b"d"], np.array([0, 1, 1], np.int32))
    assert (piece.total(3), piece.mean(), piece.largest()) == (5, 5 / 3, 3)
    assert RecordPiece(numbers=np.arange(3)).total(3) == 60
