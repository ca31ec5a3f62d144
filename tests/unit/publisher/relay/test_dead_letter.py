"""The isolation of a rejected record, and its record in the refusal topic."""

from confluent_kafka import KafkaError, Message
from hypothesis import given, settings
from hypothesis import strategies as st

from publisher.kafka.sandboxed_reads import UnreadableBatch
from publisher.relay.dead_letter import (
    LARGEST_KEY,
    TransactionLimit,
    TransactionRejected,
    rejected_record,
    unreadable_batch,
    unreadable_record,
)
from publisher.relay.transform import Route


@settings(max_examples=50)
@given(st.integers(1, 10_000), st.integers(0, 12), st.data())
def test_a_record_that_cannot_be_copied_is_soon_alone(count: int, idle: int, data: st.DataObject) -> None:
    """After each rejection the ends of other partitions are reported first, and count as records of a transaction."""
    rejected = data.draw(st.integers(0, count - 1))
    route = Route("eu", "t", 0, "t", 0)
    active = {("t", 0): route} | {("t", 1 + n): Route("eu", "t", 1 + n, "t", 7) for n in range(idle)}
    limit, transactions, pending_ends = TransactionLimit(10_000), 0, idle
    while not (limit.current == 1 and not pending_ends and route.committed == rejected):
        transactions += 1
        ends = min(limit.current, pending_ends)
        records = min(limit.current - ends, count - route.committed)
        pending_ends -= ends
        if route.committed <= rejected < route.committed + records:
            limit.record_rejection(records, {("t", 0): route.committed + records})
            pending_ends = idle
        else:
            route.committed += records
            limit.record_commit(active)
    assert transactions <= 45 + 24 * idle
    assert route.committed == rejected, "the records before it are committed"


def test_the_limit_grows_once_all_candidates_are_committed() -> None:
    first, second, stopped = ("t", 0), ("t", 1), ("t", 2)
    active = {partition: Route("eu", *partition, "t", 0) for partition in (first, second)}
    limit = TransactionLimit(100)
    limit.record_rejection(10, {first: 6, second: 4, stopped: 9})
    for partition, committed, expected in ((first, 5, 5), (first, 6, 5), (second, 3, 5), (second, 4, 10), (second, 4, 20)):
        active[partition].committed = committed
        limit.record_commit(active)
        assert limit.current == expected


def test_the_limit_grows_once_the_record_is_isolated_although_other_candidates_remain() -> None:
    route = Route("eu", "t", 0, "t", 0)
    limit, sizes = TransactionLimit(100), []
    limit.record_rejection(1, {("t", 0): 5_000})
    limit.record_isolation()
    for _ in range(8):
        limit.record_commit({("t", 0): route})
        sizes.append(limit.current)
    assert sizes == [2, 4, 8, 16, 32, 64, 100, 100]


def message(key: bytes = b"k") -> Message:
    headers = [("a", b"1"), ("x-copied-to", b"t/3")]
    return Message(topic="t", partition=3, offset=7, key=key, value=b"v", headers=headers, timestamp=(1, 1_000))  # type: ignore[arg-type]


def test_a_rejection_has_the_reason_of_the_refusal_topic_if_the_code_is_known() -> None:
    assert TransactionRejected(KafkaError.MSG_SIZE_TOO_LARGE, 5).reason == "too-large"
    assert TransactionRejected(0, 5).reason is None


def test_a_dead_letter_has_the_record_and_the_facts_of_its_rejection() -> None:
    letter = rejected_record("eu", message(), "too-large", "too large").dead_letter(bare=False)
    assert (letter["key"], letter["value"], letter["timestamp"]) == (b"k", b"v", 1_000)
    assert letter["headers"] == [
        ("a", b"1"),
        ("refused.reason", "too-large"),
        ("refused.error", "too large"),
        ("refused.source", "eu/t/3/7"),
    ]


def test_a_bare_dead_letter_names_the_parts_that_it_omits() -> None:
    record = rejected_record("eu", message(b"k" * (LARGEST_KEY + 1)), "too-large", "too large")
    letter = record.dead_letter(bare=True)
    assert (letter["key"], letter["value"], letter["timestamp"]) == (None, None, 0)
    assert ("refused.without", "headers,value,key") in letter["headers"]
    assert ("a", b"1") not in letter["headers"]


def test_a_dead_letter_of_unreadable_headers_has_the_value_without_them() -> None:
    letter = unreadable_record("eu", message(), ValueError("not UTF-8")).dead_letter(bare=False)
    assert letter["value"] == b"v"
    assert [name for name, _ in letter["headers"]] == ["refused.reason", "refused.error", "refused.source", "refused.without"]
    assert ("refused.error", "ValueError('not UTF-8')") in letter["headers"]


def test_a_dead_letter_of_an_unreadable_batch_has_its_first_and_its_last_offset() -> None:
    record = unreadable_batch("eu", UnreadableBatch(("t", 3), 5, 9, "gzip", 100, 5, "too large"), 2_000)
    assert (record.partition, record.message.offset()) == (("t", 3), 9)
    headers = dict(record.dead_letter(bare=True)["headers"])
    assert (headers["refused.reason"], headers["refused.source"], headers["refused.last"]) == (
        "unreadable-batch",
        "eu/t/3/5",
        "9",
    )
