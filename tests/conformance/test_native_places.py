"""The native reader returns the same places and answers of score records as Python, and the same errors for invalid ones."""

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from publisher.kafka.partitions import Partition
from scorer.native.byte_columns import PADDING, ByteColumn, Column
from scorer.native.source_positions import UNCERTAIN_PLACE, places
from scorer.rollout.canary_analysis import answer_records
from scorer.rollout.canary_analysis.answer_records import UnreadableAnswer
from scorer.rollout.canary_analysis.paired_metrics import VersionAnswer
from scorer.scores.record import RecordEncoder
from tests.unit.scorer.decoding.formats import damaged

pytestmark = pytest.mark.debian("cc")
ENCODER = RecordEncoder(model="m", version="1.0.0", digest="sha256:" + "a" * 64, role="champion", region="r")
TOPICS = ["events", "events.more", "é", 'a"b', ""]
NUMBERS = ["0", "7", "-1", "-0", "1.0", "1e2", "12345678901234567", "99999999999999999999", "null", '"1"', "[]"]
VALUES = [
    '"x"',
    "null",
    "1e-400",
    "0.1e1",
    "[1,[2,{}]]",
    "[1,]",
    '{"a":{"b":[true,false]}}',
    "[" * 9 + "]" * 9,
    '"\\u00e9"',
    "tru",
]


@st.composite
def written(draw: st.DrawFn) -> bytes:
    """Draw a record as scorers write it."""
    score = draw(st.sampled_from([b"0.25", b"[1,2.5]", b'{"a":[1],"b":2}', b"null", b"1e300"]))
    place = draw(st.sampled_from(TOPICS)), draw(st.integers(0, 2))
    decision, id_ = draw(st.sampled_from([None, "late", "on\ntime"])), draw(st.sampled_from(["e1", "é", ""]))
    offset, time = draw(st.integers(0, 2**40)), draw(st.integers(0, 2))
    encoder = ENCODER.acting(
        role="champion", arm="canary", revision=draw(st.integers(0, 1)), fallback=draw(st.none() | st.just("away"))
    )
    return encoder.encode([id_], [score], [decision], [place], [offset], [time], "scored", 9)[0]


@st.composite
def strange(draw: st.DrawFn) -> bytes:
    """Draw a text that is nearly a record."""
    parts = {
        "topic": json.dumps(draw(st.sampled_from(TOPICS))),
        "partition": "1",
        "offset": "5",
        "more": draw(st.sampled_from(VALUES)),
    }
    for name in draw(st.lists(st.sampled_from(sorted(parts)), max_size=2)):
        parts[name] = draw(st.sampled_from(NUMBERS))
    named = draw(st.permutations(sorted(parts.items())))[: draw(st.sampled_from([3, 4, 4]))]
    named += named[: draw(st.sampled_from([0, 0, 0, 1]))]
    source = "{" + ",".join(f'"{name}":{value}' for name, value in named) + "}"
    members = [
        ("source", source),
        ("id", '"e"'),
        ("digest", '"d"'),
        ("status", '"scored"'),
        ("x", draw(st.sampled_from(VALUES))),
    ]
    if draw(st.integers(0, 4)) == 0:
        members.append(("source", draw(st.sampled_from([source, "null", "{}"]))))
    gap = draw(st.sampled_from(["", "", " ", "\n"]))
    text = f",{gap}".join(f'"{name}"{gap}:{gap}{value}' for name, value in draw(st.permutations(members)))
    return f"{gap}{{{text}{gap}}}{gap}".encode()


events = st.one_of(
    written(), written(), written(), strange(), written().flatmap(damaged), strange().flatmap(damaged), st.none()
)


def packed(values: Sequence[bytes | None]) -> ByteColumn:
    bounds = np.cumsum([0, *(len(value or b"") for value in values)]).astype(np.int64)
    nulls = np.array([value is None for value in values], np.uint8)
    text = np.frombuffer(b"".join([*(value or b"" for value in values), PADDING]), np.uint8)
    return ByteColumn(text, bounds[:-1], bounds[1:], nulls)


def lanes(values: Column, rows: Sequence[int]) -> dict[Partition, tuple[list[int], list[int]]] | tuple[int, str]:
    try:
        places_of = answer_records.group_by_partition(values, np.array(rows, np.int64))
    except UnreadableAnswer as error:
        return error.row, str(error)
    return {lane: (at.tolist(), offsets.tolist()) for lane, (at, offsets) in places_of.items()}


def answers(values: Column, rows: Sequence[int]) -> list[VersionAnswer] | tuple[int, str]:
    try:
        return answer_records.answers_at(values, np.array(rows, np.int64))
    except UnreadableAnswer as error:
        return error.row, str(error)


@settings(max_examples=400)
@given(st.lists(events, max_size=6), st.data())
def test_places_and_answers_equal_those_of_python(values: list[bytes | None], data: st.DataObject) -> None:
    rows = sorted(data.draw(st.sets(st.integers(0, len(values) - 1)))) if values else []
    assert lanes(packed(values), rows) == lanes(values, rows)
    placed = [row for row in rows if isinstance(lanes(values, [row]), dict)]
    assert answers(packed(values), placed) == answers(values, placed)


@pytest.mark.parametrize("offset", [2**63, -(2**63), 10**20])
def test_an_offset_that_no_partition_has_is_none(offset: int) -> None:
    value = b'{"source":{"topic":"events","partition":0,"offset":%d}}' % offset
    for values in ([value], packed([value])):
        assert "offset" in str(lanes(values, [0]))
        assert isinstance(lanes(values, [0]), tuple)


def test_records_of_scorers_are_certain_beside_invalid_ones() -> None:
    """Batches of several partitions beside invalid records: the end, which is read once, does not hide them."""
    records = [
        ENCODER.encode([f"e{n}"], [b"0.5"], [None], [("events", n // 3)], [n], [n % 2], "scored", 9)[0] for n in range(12)
    ]
    result = places(packed([*records, records[0][:-1], records[0] + b"}", b""]), np.arange(15))
    assert result is not None
    firsts, offsets = result
    assert firsts.tolist() == [0, 0, 0, 3, 3, 3, 6, 6, 6, 9, 9, 9, *[UNCERTAIN_PLACE] * 3]
    assert offsets[:12].tolist() == list(range(12))


def test_more_places_than_the_native_reader_remembers_are_read() -> None:
    values = [ENCODER.encode(["e"], [b"0.5"], [None], [("events", n % 99)], [n], [1], "scored", 9)[0] for n in range(300)]
    by_partition = lanes(packed(values), range(300))
    assert isinstance(by_partition, dict)
    assert by_partition == lanes(values, range(300))
    assert len(by_partition) == 99
