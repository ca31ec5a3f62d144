"""The note of what is in hand, and whose the deaths are."""

from pathlib import Path
from typing import cast
from unittest.mock import Mock

from scorer.crash_isolation.in_flight_journal import InFlightJournal
from scorer.crash_isolation.quarantine import LETHAL, Quarantine
from scorer.crash_isolation.sandbox_process import SandboxProcessDied
from scorer.models.version_manager import VersionManager
from tests.unit.scorer.minimal import minimal
from tests.unit.scorer.worker.test_score_batch import batch

ENDS = {("in", 0): 7}


def begun(path: Path) -> Quarantine:
    """A process begins, with the note that the last one left."""
    settings = minimal(input={"topics": ["in"]})
    return Quarantine(settings, InFlightJournal(path), lambda _: None, lambda: None)  # type: ignore[arg-type, return-value]


def test_a_note_says_what_is_in_hand_and_which_candidate_looks_at_it(tmp_path: Path) -> None:
    note = InFlightJournal(tmp_path / "note")
    assert (note.read(), note.candidate()) == ({}, "")
    note.note(ENDS, "sha256:b@3")
    again = InFlightJournal(tmp_path / "note")
    assert (again.read(), again.candidate()) == (ENDS, "sha256:b@3")
    note.clear()
    assert (again.read(), again.candidate()) == ({}, "")


def test_two_deaths_with_a_candidate_in_hand_refuse_it_and_a_new_promotion_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "note"
    for deaths in range(1, LETHAL + 1):
        InFlightJournal(path).note(ENDS, "sha256:b@3")
        process = begun(path)
        assert not process.may_ask(), "the next batch is the champion's alone"
        assert (process.lethal("sha256:b@3") is not None) is (deaths == LETHAL)
        process.close()
        assert begun(path).lethal("sha256:b@4") is None
    assert InFlightJournal(path).deaths("sha256:b@3") == LETHAL, "a death that nobody was blamed for counts for nobody"


def test_a_death_without_a_candidate_in_hand_is_an_events(tmp_path: Path) -> None:
    path = tmp_path / "note"
    for _ in range(LETHAL):
        InFlightJournal(path).note(ENDS)
        process = begun(path)
        assert process.lethal("sha256:b@3") is None
        process.close()
    InFlightJournal(path).clear()
    assert begun(path).may_ask()


def test_a_shadow_has_the_candidate_examined_which_convicts_or_acquits_it(tmp_path: Path) -> None:
    path, candidate, suspects = tmp_path / "note", "sha256:b@3", batch([b"1"] * 7)
    for dies in (False, True):
        InFlightJournal(path).note(ENDS, candidate)
        process = begun(path)
        process.take_up(suspects, candidate)
        if dies:
            assert not process.died(suspects, SandboxProcessDied("was killed")), "the candidate's before it is an event's"
        process.put_down()
        assert (process.lethal(candidate) is not None) is dies
        process.take_up(suspects)
        process.answered(suspects)
        process.look(dict(ENDS), lambda _: {}, cast(VersionManager, Mock()))
        assert process.may_ask(), "the examination is over"
        assert InFlightJournal(path).deaths(candidate) == (LETHAL if dies else 0)
        process.close()
