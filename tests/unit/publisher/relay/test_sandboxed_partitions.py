from publisher.kafka.sandbox_program import Row
from publisher.kafka.sandboxed_reads import Sandboxed, messages_of
from publisher.relay.sandboxed_partitions import SandboxedPartitions, rows_to_copy
from publisher.relay.transform import Route

PLACE = ("scores", 0)


def row(offset: int, unread: str | None = None) -> Row:
    return Row(offset, b"k", b"v", (1, 1_000), 3, [("a", b"1")], unread)


def never(_: bool) -> None:
    raise AssertionError("no process is needed")


def test_a_partition_is_sandboxed_when_a_process_first_copies_it_and_not_in_later_runs() -> None:
    started: set[tuple[str, int]] = set()
    route = Route("eu", "scores", 0, "scores", 5)
    first, second = (SandboxedPartitions(Sandboxed(never), started) for _ in range(2))  # type: ignore[arg-type]
    assert first.begin([route]) == []
    assert PLACE in first
    assert second.begin([route]) == [route]
    assert PLACE not in second


def test_no_more_rows_are_carried_than_a_transaction_may_hold() -> None:
    rows = [row(offset) for offset in range(4)]
    assert rows_to_copy(rows, 3) == rows[:3]
    assert rows_to_copy([], 3) == []


def test_a_row_whose_headers_cannot_be_read_is_carried_alone() -> None:
    rows = [row(1), row(2, "not UTF-8"), row(3)]
    assert rows_to_copy(rows, 3) == rows[:1]
    assert rows_to_copy(rows[1:], 3) == rows[1:2]


def test_rows_become_messages_as_the_client_gives_them() -> None:
    (message,) = messages_of(PLACE, [row(7)])
    assert (message.topic(), message.partition(), message.offset()) == ("scores", 0, 7)
    assert (message.key(), message.value(), message.headers()) == (b"k", b"v", [("a", b"1")])
    assert (message.timestamp(), message.leader_epoch(), message.error()) == ((1, 1_000), 3, None)
