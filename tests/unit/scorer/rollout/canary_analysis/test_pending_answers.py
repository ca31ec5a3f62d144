"""Waiting answers are read by their tickets, in any order and regardless of further answers."""

import numpy as np
import pytest
from xxhash import xxh64_intdigest

from scorer.rollout.canary_analysis.answer_records import UnreadableAnswer
from scorer.rollout.canary_analysis.paired_metrics import VersionAnswer
from scorer.rollout.canary_analysis.pending_answers import MAX_BYTES, KeyedAnswer, PendingAnswers

KEYS = [b"k0", None, b"k2", b""]


def record(name: str) -> bytes:
    return b'{"digest":"%b","status":"scored"}' % name.encode()


def test_tickets_find_their_answers_and_keys_across_blocks() -> None:
    pending = PendingAnswers()
    first = pending.add_block([record(f"a{n}") for n in range(4)], KEYS, 100)
    second = pending.add_block([record(f"b{n}") for n in range(4)], KEYS, 100)
    letter = pending.add(KeyedAnswer(VersionAnswer("c", "dead_lettered"), b"k"))
    tickets = np.array([second + 1, letter, first + 2, first, second + 3])
    assert [answer.digest for answer in pending.answers(tickets)] == ["b1", "c", "a2", "a0", "b3"]
    hashes = [None, *map(xxh64_intdigest, (b"k", b"k2", b"k0", b""))]
    assert pending.hashes(tickets) == hashes
    pending.keep(tickets)
    assert pending.hashes(tickets) == hashes


def test_only_waiting_answers_of_the_oldest_block_are_kept_if_blocks_are_too_large() -> None:
    pending = PendingAnswers()
    waiting = []
    for n in range(2_000):
        waiting.append(pending.add_block([record(f"{n}.{row}") for row in range(4)], KEYS, MAX_BYTES // 3) + 1)
        del waiting[:-1_500]
        pending.keep(np.array(waiting))
    assert [answer.digest for answer in pending.answers(np.array(waiting))] == [f"{n}.1" for n in range(500, 2_000)]
    pending.keep(np.array(waiting[:1]))
    assert pending.answers(np.array(waiting[:1]))[0].digest == "500.1"


def test_an_unreadable_answer_is_named_by_its_index_in_the_request() -> None:
    pending = PendingAnswers()
    first, second = (pending.add_block([record("a"), b"{}", None], [None] * 3, 10) for _ in range(2))
    for tickets, row in (([first, second, first + 1], 2), ([first, first + 1, first], 1), ([second, first, second + 2], 2)):
        with pytest.raises(UnreadableAnswer) as raised:
            pending.answers(np.array(tickets))
        assert raised.value.row == row
