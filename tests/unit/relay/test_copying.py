"""Which records are copied, and the two headers that are added."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from publisher import positions
from publisher.copying import Route, Rules, Tally, copy

NAMES = st.text("abcxyz-", min_size=1, max_size=8).filter(lambda name: name not in ("x-origin", "x-hops"))
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=5)), max_size=4)


class Record:
    """What a consumer hands over."""

    def __init__(self, offset: int, headers: Any = None, topic: str = "scores") -> None:
        self._offset, self._headers, self._topic = offset, headers, topic

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self._offset

    def headers(self) -> Any:
        return self._headers

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000 + self._offset

    def leader_epoch(self) -> int:
        return 4


def copied(rules: Rules, *records: Record) -> tuple[list[tuple[Any, ...]], Route, Tally]:
    """What is produced of these records."""
    route = Route("eu", "scores", 3, "eu.scores", 0)
    produced: list[tuple[Any, ...]] = []
    tally = Tally()
    events = copy(records, {("scores", 3): route}, rules, lambda *record: produced.append(record), tally)  # type: ignore[arg-type]
    assert events == []
    return produced, route, tally


@settings(max_examples=50)
@given(HEADERS)
def test_everything_is_kept_and_the_origin_is_added_last(headers: list[tuple[str, bytes | None]]) -> None:
    produced, route, tally = copied(Rules("us", {}), Record(17, list(headers)))
    [(topic, value, key, partition, _, _, timestamp, written)] = produced
    assert (topic, value, key, partition, timestamp) == ("eu.scores", b"v", b"k", 3, 1_700_000_000_017)
    assert written[:-2] == headers
    assert positions.parse(written[-2][1]) == ("eu", "scores", 3, 17)
    assert written[-1] == ("x-hops", b"1")
    assert route.settle()
    assert (route.next, route.timestamp_ms, route.epoch, tally.copied) == (18, 1_700_000_000_017, 4, 1)


def test_a_record_that_came_from_elsewhere_keeps_its_origin_and_counts_a_hop() -> None:
    before = [("x-origin", b"asia/t/0/5"), ("a", b"1"), ("x-hops", b"2")]
    [record], _, _ = copied(Rules("us", {}), Record(1, before))
    assert record[-1] == [("x-origin", b"asia/t/0/5"), ("a", b"1"), ("x-hops", b"3")]
    [record], _, _ = copied(Rules("us", {}), Record(1, [("x-origin", b"asia/t/0/5"), ("x-hops", b"many")]))
    assert record[-1][-1] == ("x-hops", b"1")


def test_what_was_first_written_at_the_destination_is_not_copied_back() -> None:
    headers = [("x-origin", b"us%20east/t/0/5"), ("x-hops", b"1")]
    produced, route, tally = copied(Rules("us east", {}), Record(8, headers))
    assert produced == []
    assert (route.settle(), route.next, tally.looped) == (True, 9, 1)
    produced, _, _ = copied(Rules("us", {}), Record(8, headers))
    assert len(produced) == 1


def test_a_filter_wants_one_value_of_each_header() -> None:
    rules = Rules("us", {"decision": ["late", "lost"], "role": ["champion"]})
    good = [("decision", b"late"), ("role", b"champion")]
    others = [None, [], [("decision", b"late")], [("decision", b"on time"), ("role", b"champion")], [("role", b"champion")]]
    produced, route, tally = copied(rules, *(Record(n, headers) for n, headers in enumerate([*others, good])))
    assert len(produced) == 1
    assert (route.settle(), route.next, tally.filtered) == (True, 6, 5)
