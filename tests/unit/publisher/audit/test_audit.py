"""A clean history has no findings; each kind of damage is reported as this kind, with its position."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from publisher.audit.event_audit import Audit, AuditedAnswers, EventReport, Kind, Window
from publisher.audit.version_order import VersionCutover
from tests.unit.publisher.audit.history import DIGESTS, TOPIC, Answer, History, audited, clean_histories, with_answer

P0 = (TOPIC, 0)


def faults(report: EventReport) -> dict[str, int]:
    return {fault: count for fault, count in report.faults.items() if count}


def place(answer: Answer) -> str:
    return f"{answer.source[0]}/{answer.source[1]}/{answer.offset}"


def assert_found(report: EventReport, fault: str, at: str) -> None:
    """Assert that there is one fault of this kind, with its position, and no other."""
    assert faults(report) == {fault: 1}
    assert report.examples == {fault: [at]}


def pick(data: st.DataObject, history: History, *kinds: Kind) -> int:
    indices = [at for at, answer in enumerate(history.answers) if answer.kind in kinds]
    assume(indices)
    return data.draw(st.sampled_from(indices))


@given(clean_histories(), st.integers(1, 50))
def test_a_clean_history_is_clean(history: History, batch: int) -> None:
    report = audited(history, batch=batch)
    assert report.clean, report
    assert report.examples == {}
    assert report.events == sum(map(len, history.inputs.values()))
    for kind, count in ((Kind.SCORED, report.scored), (Kind.EXPIRED, report.expired), (Kind.DEAD, report.dead_lettered)):
        assert count == sum(answer.kind is kind for answer in history.answers)
    assert (report.pending, report.repeated_ids, report.ids_sampled) == (0, 0, 1)


@given(clean_histories(), st.data())
def test_a_lost_answer_is_missing(history: History, data: st.DataObject) -> None:
    lost_answer = history.answers[at := pick(data, history, *Kind)]
    history.answers.pop(at)
    assert_found(audited(history), "missing", place(lost_answer))


@given(clean_histories(), st.sampled_from(Kind), st.integers(1, 9), st.data())
def test_a_second_answer_of_any_kind_is_a_duplicate(history: History, kind: Kind, batch: int, data: st.DataObject) -> None:
    answer = history.answers[at := pick(data, history, *Kind)]
    history.answers.insert(at, replace(answer, kind=kind))
    report = audited(history, batch=batch)
    assert_found(report, "duplicates", place(answer))
    assert report.repeated_ids == 0


@given(clean_histories(), st.data())
def test_an_answer_without_an_input_is_a_phantom(history: History, data: st.DataObject) -> None:
    answer = history.answers[pick(data, history, *Kind)]
    windows = {partition: history.window(partition) for partition in history.inputs}
    history.inputs[answer.source].remove(answer.offset)
    assert_found(audited(history, windows), "phantoms", place(answer))


@given(clean_histories(), st.sampled_from([P0, (TOPIC, 99), ("trains", 0)]))
def test_an_answer_beyond_the_end_or_for_a_strange_partition_is_a_phantom(history: History, source: tuple[str, int]) -> None:
    history.answers.append(Answer(source, 2**40, Kind.SCORED, DIGESTS[0], 0))
    assert faults(audited(history)) == {"phantoms": 1}


@given(clean_histories(), st.integers(1, 9), st.data())
def test_an_overtaken_score_is_out_of_order(history: History, batch: int, data: st.DataObject) -> None:
    first = pick(data, history, Kind.SCORED, Kind.EXPIRED)
    late = history.answers[first]
    followers = [a for a in history.answers[first + 1 :] if a.source == late.source and a.kind is not Kind.DEAD]
    assume(followers)
    history.answers.remove(late)
    history.answers.insert(history.answers.index(data.draw(st.sampled_from(followers))) + 1, late)
    assert_found(audited(history, batch=batch), "out_of_order", place(late))


@given(clean_histories(), st.data())
def test_a_dead_letter_may_be_out_of_order(history: History, data: st.DataObject) -> None:
    answer = history.answers.pop(pick(data, history, Kind.DEAD))
    history.answers.insert(data.draw(st.integers(0, len(history.answers))), answer)
    assert audited(history).clean


@given(clean_histories(), st.data())
def test_a_score_by_an_older_version_is_a_regression(history: History, data: st.DataObject) -> None:
    at = pick(data, history, Kind.SCORED)
    answer = history.answers[at]
    swaps = history.swaps[answer.source]
    past = [swap for swap in swaps if swap.offset <= answer.offset]
    assume(past)
    older = data.draw(st.sampled_from(sorted({*DIGESTS, "sha256:unknown"} - {past[-1].digest})))
    assume(not any(swap.digest == older for swap in swaps[len(past) :]))
    assert_found(audited(with_answer(history, at, digest=older)), "version_regressions", place(answer))


@given(clean_histories(), st.data())
def test_an_answer_behind_the_committed_offset_is_uncommitted(history: History, data: st.DataObject) -> None:
    answer = history.answers[pick(data, history, *Kind)]
    history.committed[answer.source] = answer.offset
    behind = [a for a in history.answers if a.source == answer.source and a.offset >= answer.offset]
    report = audited(history)
    assert faults(report) == {"uncommitted": len(behind)}
    assert report.examples["uncommitted"][0] == place(answer)


@given(clean_histories(), st.data())
def test_an_unanswered_event_that_is_not_due_is_pending(history: History, data: st.DataObject) -> None:
    answer = history.answers.pop(pick(data, history, *Kind))
    history.due[answer.source] = answer.offset
    report = audited(history)
    assert report.clean
    assert report.pending == 1


@given(clean_histories(), st.integers(0, 99))
def test_an_unreadable_record_is_a_fault(history: History, offset: int) -> None:
    history.unreadable.append(offset)
    assert_found(audited(history), "unreadable", f"scores/0/{offset}")


@given(clean_histories(), st.data())
def test_a_repeated_id_is_counted_and_no_fault(history: History, data: st.DataObject) -> None:
    at, other = pick(data, history, *Kind), pick(data, history, *Kind)
    assume(at != other)
    report = audited(with_answer(history, at, id=history.answers[other].id))
    assert report.clean
    assert report.repeated_ids == 1


@given(clean_histories(), st.integers(0, 60), st.integers(0, 60))
def test_answers_outside_the_window_are_ignored(history: History, lo: int, hi: int) -> None:
    windows = {partition: replace(history.window(partition), lo=lo, hi=hi, end=10**6) for partition in history.inputs}
    report = audited(history, windows)
    assert report.clean
    assert report.events == sum(lo <= offset < hi for offsets in history.inputs.values() for offset in offsets)
    assert report.scored + report.expired + report.dead_lettered == report.events


@given(clean_histories(), st.data())
def test_the_counts_add_up_for_any_damage(history: History, data: st.DataObject) -> None:
    windows = {partition: history.window(partition) for partition in history.inputs}
    remaining = data.draw(st.lists(st.sampled_from(history.answers), max_size=60))
    history.inputs[P0] = data.draw(st.lists(st.sampled_from(history.inputs[P0]), unique=True))
    history.answers = remaining
    report = audited(history, windows)
    answers = report.scored + report.expired + report.dead_lettered
    assert answers == len(remaining)
    assert answers == report.events - report.missing - report.pending + report.duplicates + report.phantoms


def test_missing_events_that_are_copies_are_counted_apart() -> None:
    audit = Audit({P0: Window(0, 10, None, 8), ("flights", 1): Window(0, 4, None, 4)})
    audit.add_inputs(P0, np.arange(10))
    audit.add_inputs(("flights", 1), np.arange(4))
    audit.add_copies(P0, np.arange(2, 12))
    answers = AuditedAnswers(("scores", 0), P0, np.array([0, 5, 6]), np.zeros(3, np.uint8), "sha256:a")
    audit.add_answers(answers)
    report = audit.report()
    assert (report.missing, report.pending, report.copies, report.missing_copies) == (9, 2, 8, 4)
    assert "4 of the missing events are copies from another region" in report.notes()[0]
    assert EventReport().notes() == []


def test_only_the_first_examples_are_reported_and_inputs_need_a_window() -> None:
    history = History({P0: list(range(100))}, [], {})
    report = audited(history)
    assert report.missing == 100
    assert report.examples == {"missing": [f"flights/0/{offset}" for offset in range(5)]}
    with pytest.raises(KeyError):
        audited(history, {(TOPIC, 1): Window(0, 2)})


def test_a_swap_of_a_partition_that_is_not_audited_is_ignored() -> None:
    history = History({P0: [0]}, [Answer(P0, 0, Kind.SCORED, "d", 0)], {("trains", 0): [VersionCutover(0, 9, "x")]})
    assert audited(history).clean
