"""Runs folded from their records: states, repeated events, cost, limits, and records of any content."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_registry.untrusted_input.json_documents import UnreadableDocument
from scorer.console.training import run_history
from scorer.console.training.run_history import RecordedRun, RunHistory
from scorer.console.training.run_records import MAX_RECORD, RunAlive, StepEnded, decode_run_record
from tests.support import recorded_runs, trained
from tests.support.recorded_runs import RecordedEvents


def only_run(history: RunHistory) -> RecordedRun:
    (run,) = history.runs.values()
    return run


def test_run_is_running_until_its_heartbeats_stop_and_then_interrupted() -> None:
    events = RecordedEvents(1)
    events.start()
    events.trials(1)
    run = only_run(recorded_runs.history(events))
    last_seen = events.at_ms / 1_000
    assert run.state(last_seen + run_history.STALE_SECONDS - 1) == "running"
    assert run.state(last_seen + run_history.STALE_SECONDS + 1) == "interrupted"
    history = recorded_runs.history(events)
    beat = RunAlive(run=events.run, attempt="first", at_ms=events.at_ms + 30_000, dropped=2)
    history.add(beat, 100, last_seen + 30, last_seen + 30)
    assert only_run(history).state(last_seen + 30 + run_history.STALE_SECONDS - 1) == "running"
    assert only_run(history).dropped == 2


def test_resumed_run_shows_each_repeated_event_once_and_costs_the_time_of_both_processes() -> None:
    killed = RecordedEvents(1)
    killed.start()
    killed.join()
    killed.trials(2, 3)
    resumed = RecordedEvents(1, "second")
    resumed.at_ms = killed.at_ms + 3_600_000
    resumed.start()
    resumed.records.append(StepEnded(**resumed.identity, step="join", seconds=1.5, result=killed.records[2].result))  # type: ignore[union-attr]
    resumed.trials(3, 3)
    resumed.end("promoted", "revision 2")
    run = only_run(recorded_runs.history(killed, resumed))
    assert (len(run.attempts), len(run.trials), run.state(1e12)) == (2, 3, "promoted")
    assert [len(trial.points) for trial in run.trials.values()] == [3, 3, 3]
    assert (run.version, run.id) == (trained.version(1), trained.run_id(1))
    assert [text for _, text in run.log if "join" in text] == ["step join started", "step join took 1.5 s"]
    assert [text for _, text in run.log if text.startswith("run ")] == [
        "run started on trainer-1",
        "run resumed on trainer-1",
        "run ended: promoted: revision 2",
    ]
    first = (killed.records[-1].at_ms - killed.records[0].at_ms) / 1_000
    second = (resumed.records[-1].at_ms - resumed.records[0].at_ms) / 1_000
    assert run.seconds == first + second


def test_failed_trial_and_failed_run_have_their_reasons_and_logs() -> None:
    events = RecordedEvents(1)
    events.start()
    events.trial(4, 27, {"depth": 3})
    events.fail_trial(4, "exit code 1", "Traceback\nValueError: x")
    events.fail("search", "all trials failed")
    run = only_run(recorded_runs.history(events))
    trial = run.trials[False, 4]
    assert (trial.failure, trial.log_tail, trial.running) == ("exit code 1", "Traceback\nValueError: x", None)
    assert (run.state(0), run.because, run.steps["search"].failure) == ("failed", "all trials failed", "all trials failed")
    assert run.log_tail.endswith("ERROR all trials failed")


def test_oldest_runs_are_forgotten_beyond_the_limit_of_bytes() -> None:
    runs = [recorded_runs.refused(number) for number in range(1, 7)]
    history = recorded_runs.history(*runs, into=RunHistory(max_bytes=20_000))
    assert history.forgotten + len(history.runs) == 6
    assert 0 < len(history.runs) < 6
    assert runs[-1].run in history.runs


def test_records_beyond_the_limit_of_a_run_are_counted() -> None:
    run = only_run(recorded_runs.history(recorded_runs.refused(1), into=RunHistory(max_run_bytes=2_000)))
    assert run.left_out > 0
    assert run.state(0) == "refused"  # the end of a run is always recorded


def test_run_with_many_attempts_has_its_first_and_its_newest_ones() -> None:
    attempts = [RecordedEvents(1, f"attempt-{number}") for number in range(run_history.MAX_ATTEMPTS + 5)]
    for events in attempts:
        events.start()
        events.end("failed", f"failure of {events.attempt}")
    run = only_run(recorded_runs.history(*attempts))
    assert len(run.attempts) == run_history.MAX_ATTEMPTS
    assert run.left_out == 5
    assert run.began_ms == attempts[0].records[0].at_ms
    assert run.because == f"failure of {attempts[-1].attempt}"


def test_unreadable_result_of_a_step_is_no_document() -> None:
    events = RecordedEvents(1)
    events.start()
    events.step("gate", {"verdict": "perhaps"})
    events.step("join", [1, 2])
    run = only_run(recorded_runs.history(events))
    assert (run.comparison, run.version, run.id) == (None, "", "")


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"null",
        b'{"event":"run_started"}',
        b'{"event":"unknown","run":"r","attempt":"a","at_ms":1}',
        b'{"event":"run_alive","run":"../up","attempt":"a","at_ms":1}',
        b'{"event":"run_alive","schema":2,"run":"r","attempt":"a","at_ms":1}',
        b'{"event":"run_alive","run":"r","attempt":"a","at_ms":1e99}',
        b'{"event":"step_ended","run":"r","attempt":"a","at_ms":1,"step":"s","seconds":1,"result":'
        + b"[" * 200
        + b"]" * 200
        + b"}",
        b'{"event":"trial_metrics","run":"r","attempt":"a","at_ms":1,"trial":1,"budget":1,"values":{"x":1e300}}',
        b'{"event":"run_alive","run":"r","attempt":"a","at_ms":1,"x":"' + b"x" * MAX_RECORD + b'"}',
    ],
)
def test_hostile_record_is_unreadable(value: bytes | None) -> None:
    with pytest.raises(UnreadableDocument):
        decode_run_record(value)


@given(st.binary(max_size=200) | st.dictionaries(st.text(max_size=8), st.integers() | st.text()).map(msgspec.json.encode))
def test_any_bytes_are_a_record_or_unreadable(value: bytes) -> None:
    try:
        record = decode_run_record(value)
    except UnreadableDocument:
        return
    RunHistory().add(record, len(value), 0.0, 0.0)
