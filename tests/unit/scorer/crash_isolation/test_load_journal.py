"""Deaths during loads of a version: the successor counts them, and a successful load clears them."""

from pathlib import Path

import pytest

from scorer.crash_isolation.in_flight_journal import InFlightJournal
from scorer.crash_isolation.load_journal import LETHAL, REMEMBERED, LoadJournal

DEADLY, HARMLESS = "sha256:b@3", "sha256:a@2"


def start_process(path: Path) -> LoadJournal:
    """Start a process with the journal of its predecessor."""
    return LoadJournal(InFlightJournal(path))


def record_death(path: Path, identity: str) -> None:
    """Write the journal of a process that died while it loaded this version."""
    start_process(path)
    journal = InFlightJournal(path)
    journal.write_loads(identity, journal.loads()[1])


def test_a_version_is_refused_after_two_deaths_in_its_load_and_loaded_under_another_revision(tmp_path: Path) -> None:
    path = tmp_path / "note"
    for deaths in range(1, LETHAL + 1):
        record_death(path, DEADLY)
        journal = start_process(path)
        assert journal.deaths(DEADLY) == deaths
        assert (journal.refusal(DEADLY) is not None) is (deaths == LETHAL)
        with journal.loading(HARMLESS):
            pass
    assert f"{LETHAL} processes died while they loaded it" in (start_process(path).refusal(DEADLY) or "")
    assert start_process(path).refusal("sha256:b@4") is None


def test_only_a_successful_load_clears_the_deaths(tmp_path: Path) -> None:
    path = tmp_path / "note"
    record_death(path, DEADLY)
    with pytest.raises(ValueError, match="refused"), start_process(path).loading(DEADLY):
        raise ValueError("refused")
    journal = start_process(path)
    assert journal.deaths(DEADLY) == 1
    with journal.loading(DEADLY):
        assert journal.age_seconds() > 0.0
    assert (start_process(path).deaths(DEADLY), journal.age_seconds()) == (0, 0.0)


def test_the_end_of_a_stopped_process_counts_for_no_version(tmp_path: Path) -> None:
    path = tmp_path / "note"
    record_death(path, DEADLY)
    InFlightJournal(path).end_load()
    assert start_process(path).deaths(DEADLY) == 0


def test_the_deaths_of_the_newest_versions_are_remembered_beside_the_events_in_flight(tmp_path: Path) -> None:
    path = tmp_path / "note"
    InFlightJournal(path).write({("in", 0): 7}, DEADLY)
    for number in range(REMEMBERED + 2):
        record_death(path, f"sha256:{number:064}@{number}")
    journal = start_process(path)
    assert [journal.deaths(f"sha256:{number:064}@{number}") for number in range(REMEMBERED + 2)] == [0, 0] + [1] * REMEMBERED
    assert (InFlightJournal(path).read(), InFlightJournal(path).candidate()) == ({("in", 0): 7}, DEADLY)
