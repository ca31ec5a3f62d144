"""The moment at which a held EndTxn is let loose, from requests as librdkafka writes them."""

import struct

import pytest

from tests.campaigns.stray import (
    ADD_PARTITIONS,
    END_TXN,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    Action,
    StrayEndTxn,
    transactional_id,
)

NAME = b"app.r0.1"


def request(key: int, name: bytes = NAME, version: int = 1) -> bytes:
    """Header v1 with a client id, then the transactional id and some more."""
    return struct.pack(">hhih", key, version, 7, 3) + b"cid" + struct.pack(">h", len(name)) + name + bytes(11)


def test_the_transactional_id_is_read_from_plain_and_compact_strings() -> None:
    assert transactional_id(request(END_TXN)) == NAME
    flexible = struct.pack(">hhih", END_TXN, 3, 7, 3) + b"cid" + bytes([0, len(NAME) + 1]) + NAME + bytes(12)
    assert transactional_id(flexible) == NAME
    assert transactional_id(struct.pack(">hhih", END_TXN, 1, 7, -1) + struct.pack(">h", len(NAME)) + NAME) == NAME


def test_it_goes_before_the_offsets_of_the_next_transaction() -> None:
    stray = StrayEndTxn()
    stray.order()
    first = request(END_TXN)
    assert stray.request(request(ADD_PARTITIONS)) is Action.PASS
    assert stray.request(first) is Action.HOLD
    overtaken = [END_TXN, ADD_PARTITIONS, TXN_OFFSET_COMMIT, PRODUCE]
    passing = [*overtaken, END_TXN, ADD_PARTITIONS, PRODUCE]
    assert [stray.request(request(key)) for key in passing] == [Action.PASS] * 7
    assert stray.request(request(TXN_OFFSET_COMMIT)) is Action.STRAY_FIRST
    assert stray.let_go() == first
    assert stray.loosed == 1
    assert stray.request(request(END_TXN)) is Action.PASS


def test_without_offsets_it_goes_before_the_second_request_with_records() -> None:
    stray = StrayEndTxn(before=PRODUCE)
    stray.order()
    assert stray.request(request(END_TXN)) is Action.HOLD
    passing = [PRODUCE, END_TXN, ADD_PARTITIONS, PRODUCE]
    assert [stray.request(request(key)) for key in passing] == [Action.PASS] * 4
    assert stray.request(request(PRODUCE)) is Action.STRAY_FIRST


@pytest.mark.parametrize("key", [END_TXN, ADD_PARTITIONS, PRODUCE, TXN_OFFSET_COMMIT])
def test_other_producers_do_not_matter(key: int) -> None:
    stray = StrayEndTxn()
    stray.order()
    stray.request(request(END_TXN))
    for _ in range(3):
        assert stray.request(request(key, b"app.r0.2")) is Action.PASS
    assert stray.held is not None


def test_nothing_is_held_without_an_order_and_one_at_a_time() -> None:
    stray = StrayEndTxn()
    assert stray.request(request(END_TXN)) is Action.PASS
    stray.order()
    assert stray.request(request(END_TXN)) is Action.HOLD
    stray.order()
    assert stray.request(request(END_TXN, b"app.r1.0")) is Action.PASS
