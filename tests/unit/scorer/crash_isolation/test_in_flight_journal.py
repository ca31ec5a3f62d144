"""The journal of the events in flight, and the attribution of deaths."""

from pathlib import Path
from typing import cast
from unittest.mock import Mock

from publisher.runtime.context import Context
from scorer.crash_isolation.in_flight_journal import InFlightJournal
from scorer.crash_isolation.quarantine import LETHAL, Quarantine
from scorer.crash_isolation.sandbox_process import SandboxProcessDied
from scorer.models.version_manager import VersionManager
from tests.unit.scorer.minimal import minimal
from tests.unit.scorer.worker.test_score_batch import batch

ENDS = {("in", 0): 7}


def start_process(path: Path) -> Quarantine:
    """Start a process with the journal of its predecessor."""
    settings = minimal(input={"topics": ["in"]})
    return Quarantine(settings, InFlightJournal(path), lambda _: None, Context())  # type: ignore[arg-type, return-value]


def test_a_journal_has_the_events_in_flight_and_their_candidate(tmp_path: Path) -> None:
    journal = InFlightJournal(tmp_path / "note")
    assert (journal.read(), journal.candidate()) == ({}, "")
    journal.write(ENDS, "sha256:b@3")
    reopened = InFlightJournal(tmp_path / "note")
    assert (reopened.read(), reopened.candidate()) == (ENDS, "sha256:b@3")
    journal.clear()
    assert (reopened.read(), reopened.candidate()) == ({}, "")


def test_two_deaths_with_a_candidate_in_flight_refuse_it_and_a_new_promotion_resets_the_count(tmp_path: Path) -> None:
    path = tmp_path / "note"
    for deaths in range(1, LETHAL + 1):
        InFlightJournal(path).write(ENDS, "sha256:b@3")
        process = start_process(path)
        assert not process.allows_candidate(), "only the champion scores the next batch"
        assert (process.refusal_reason("sha256:b@3") is not None) is (deaths == LETHAL)
        process.close()
        assert start_process(path).refusal_reason("sha256:b@4") is None
    assert InFlightJournal(path).deaths("sha256:b@3") == LETHAL, "a start without a death changes no count"


def test_a_death_without_a_candidate_in_flight_is_attributed_to_an_event(tmp_path: Path) -> None:
    path = tmp_path / "note"
    for _ in range(LETHAL):
        InFlightJournal(path).write(ENDS)
        process = start_process(path)
        assert process.refusal_reason("sha256:b@3") is None
        process.close()
    InFlightJournal(path).clear()
    assert start_process(path).allows_candidate()


def test_in_a_shadow_the_sandbox_decides_whether_the_candidate_was_the_cause(tmp_path: Path) -> None:
    path, candidate, suspects = tmp_path / "note", "sha256:b@3", batch([b"1"] * 7)
    for dies in (False, True):
        InFlightJournal(path).write(ENDS, candidate)
        process = start_process(path)
        process.begin_batch(suspects, candidate)
        if dies:
            assert not process.record_death(suspects, SandboxProcessDied("was killed")), (
                "the death is attributed to the candidate first"
            )
        process.end_batch()
        assert (process.refusal_reason(candidate) is not None) is dies
        process.begin_batch(suspects)
        process.record_answer(suspects)
        process.poll(dict(ENDS), lambda _: {}, cast(VersionManager, Mock()))
        assert process.allows_candidate(), "the bisection is over"
        assert InFlightJournal(path).deaths(candidate) == (LETHAL if dies else 0)
        process.close()
