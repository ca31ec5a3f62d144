"""The selection of records to copy, and the headers of copies."""

from typing import Any

import pytest
from confluent_kafka import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from publisher.kafka import source_position
from publisher.kafka.source_position import origin_of
from publisher.relay.relay_state import LaneState
from publisher.relay.transform import CopyCounts, Route, Rules, copy

NAMES = st.text("abcxyz-", min_size=1, max_size=8).filter(lambda name: name not in ("x-origin", "x-hops", "x-copied-to"))
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=5)), max_size=4)


def record(offset: int, headers: Any = None) -> Message:
    stamp = (1, 1_700_000_000_000 + offset)
    return Message(
        topic="scores", partition=3, offset=offset, key=b"k", value=b"v", headers=headers, timestamp=stamp, leader_epoch=4
    )


def copied(rules: Rules, *records: Message) -> tuple[list[tuple[Any, ...]], Route, CopyCounts]:
    route = Route("eu", "scores", 3, "eu.scores", 0)
    produced: list[tuple[Any, ...]] = []
    tally = CopyCounts()
    routes = {("scores", 3): route}
    events, unreadable = copy(records, routes, rules, lambda *parts: produced.append(parts), tally, skip_unreadable=False)
    assert (events, unreadable) == ([], [])
    return produced, route, tally


@settings(max_examples=50)
@given(HEADERS)
def test_all_headers_are_preserved_and_the_origin_is_added_last(headers: list[tuple[str, bytes | None]]) -> None:
    produced, route, tally = copied(Rules("eu", "us", {}), record(17, list(headers)))
    [(topic, value, key, partition, _, _, timestamp, written_headers)] = produced
    assert (topic, value, key, partition, timestamp) == ("eu.scores", b"v", b"k", 3, 1_700_000_000_017)
    assert written_headers[:-3] == headers
    assert source_position.parse(written_headers[-3][1]) == ("eu", "scores", 3, 17)
    assert written_headers[-2:] == [("x-hops", b"1"), ("x-copied-to", b"eu.scores/3")]
    assert route.advance_past_read()
    assert (route.next, route.timestamp_ms, route.epoch, tally.copied) == (18, 1_700_000_000_017, 4, 1)


def test_a_partition_is_level_at_its_end_once_everything_before_is_confirmed() -> None:
    _, route, _ = copied(Rules("eu", "us", {}), record(17))
    route.advance_to_end(20, 1_000)  # the record is not confirmed yet
    assert (route.next, route.level_ms) == (20, -1)
    route.confirm()
    route.advance_to_end(22, 2_000)  # an aborted record and its marker
    assert (route.next, route.committed, route.level_ms) == (22, 20, 2_000)
    lane = LaneState(0, routes={("scores", 3): route})
    route.end = 24
    assert (lane.lag_records(), lane.lag_seconds(1_700_000_000_117)) == (4, 0.1)  # since the record, whose time is later
    route.level_ms = 1_700_000_000_100
    assert lane.lag_seconds(1_700_000_000_117) == 0.017


TO = ("x-copied-to", b"scores/3")


def test_a_copied_record_keeps_its_origin_and_counts_a_hop() -> None:
    before = [("x-origin", b"asia/t/0/5"), ("a", b"1"), ("x-hops", b"2"), TO]
    [copy_], _, tally = copied(Rules("eu", "us", {}), record(1, before))
    assert copy_[-1] == [("a", b"1"), ("x-origin", b"asia/t/0/5"), ("x-hops", b"3"), ("x-copied-to", b"eu.scores/3")]
    [copy_], _, _ = copied(Rules("eu", "us", {}), record(1, [("x-origin", b"asia/t/0/5"), ("x-hops", b"many"), TO]))
    assert copy_[-1][1] == ("x-hops", b"1")
    assert tally.derived == 0


def test_a_record_first_written_at_the_destination_is_not_copied_back() -> None:
    headers = [("x-origin", b"us%20east/t/0/5"), ("x-hops", b"1"), TO]
    produced, route, tally = copied(Rules("eu", "us east", {}), record(8, list(headers)))
    assert produced == []
    assert (route.advance_past_read(), route.next, tally.looped) == (True, 9, 1)
    produced, _, _ = copied(Rules("eu", "us", {}), record(8, headers))
    assert len(produced) == 1


@pytest.mark.parametrize(
    "forwarded",
    [
        [("x-origin", b"us/flights/3/5"), ("x-hops", b"1"), ("x-copied-to", b"flights/3")],
        [("x-origin", b"us/flights/3/5"), ("x-hops", b"1"), ("x-copied-to", b"scores/2")],
        [("x-origin", b"us/flights/3/5"), ("x-hops", b"1")],
        [("x-origin", b"us/scores/2/5")],
        [("x-origin", b"https://example.com")],
        [("x-origin", b"eu/scores/3/0"), ("x-copied-to", b"scores/3")],
        [("x-origin", b"eu/scores/3/" + 5_000 * b"9"), ("x-copied-to", b"scores/3")],
    ],
)
def test_a_record_with_forwarded_headers_of_a_copy_is_copied_with_its_own_position(forwarded: list[tuple[str, bytes]]) -> None:
    [copy_], _, tally = copied(Rules("eu", "us", {}), record(8, [("a", b"1"), *forwarded]))
    assert copy_[-1] == [("a", b"1"), ("x-origin", b"eu/scores/3/8"), ("x-hops", b"1"), ("x-copied-to", b"eu.scores/3")]
    assert (tally.copied, tally.derived) == (1, 1)


def test_copies_without_the_third_header_are_recognised_by_their_names() -> None:
    old = [("x-origin", b"us/scores/3/5"), ("x-hops", b"1")]
    assert copied(Rules("eu", "us", {}), record(8, list(old)))[2].looped == 1
    assert copied(Rules("eu", "us", {}, "{region}.{topic}"), record(8, list(old)))[2].derived == 1
    assert origin_of(list(old), ("anything", 0)) == b"us/scores/3/5"


def test_a_filter_requires_one_value_of_each_header() -> None:
    rules = Rules("eu", "us", {"decision": ["late", "lost"], "role": ["champion"]})
    good = [("decision", b"late"), ("role", b"champion")]
    others = [None, [], [("decision", b"late")], [("decision", b"on time"), ("role", b"champion")], [("role", b"champion")]]
    produced, route, tally = copied(rules, *(record(n, headers) for n, headers in enumerate([*others, good])))
    assert len(produced) == 1
    assert (route.advance_past_read(), route.next, tally.filtered) == (True, 6, 5)
