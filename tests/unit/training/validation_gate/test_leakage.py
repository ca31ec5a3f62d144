"""The training rows of the champion by its provenance, and the hold-out rows among them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.unit.training.hold_out import rows
from training.validation_gate.leakage import BUILD_TYPE, Learned, learned

ROWS = rows(np.zeros(10), np.arange(10) * 1_000)


def provenance(**changes: Any) -> dict[str, Any]:
    """Return the provenance of a run that froze offsets 2 to 6 of in[0], and labels."""
    events = {"name": "events", "uri": "kafka:C/in/0", "annotations": {"from": 2, "to": 6}}
    labels = {"name": "labels", "uri": "kafka:C/labels/0", "annotations": {"from": 0, "to": 99}}
    definition = {"buildType": BUILD_TYPE, "internalParameters": {}, "resolvedDependencies": [events, labels]}
    return {"buildDefinition": definition | changes}


@pytest.mark.parametrize(
    ("span", "until", "count"),
    [((2, 6), None, 4), ((0, 0), None, 0), ((9, 99), None, 1), ((10, 99), None, 0), ((2, 6), 3_000, 2), ((2, 6), 1_999, 0)],
)
def test_rows_of_the_training_are_counted(span: tuple[int, int], until: int | None, count: int) -> None:
    assert Learned("C", {("in", 0): span}, until).rows(ROWS, "C") == count
    assert Learned("C", {("in", 1): span, ("other", 0): span}, until).rows(ROWS, "C") == 0
    assert Learned("C", {("in", 0): span}, until).rows(ROWS, "another cluster") == 0


def test_between_events_and_the_feature_log_the_time_decides() -> None:
    logged = replace(ROWS, logged=True)
    events = Learned("C", {("in", 0): (2, 6)}, 3_000)
    assert (events.rows(ROWS, "C"), events.rows(logged, "C")) == (2, 4)
    assert Learned("C", {("in", 0): (2, 6)}, None).rows(logged, "C") == len(ROWS)
    assert Learned("C", {("in", 0): (2, 6)}, 3_000, logged=True).rows(logged, "C") == 2


def test_a_second_record_of_an_event_in_the_feature_log_counts() -> None:
    scored_again = replace(ROWS, logged=True, places=replace(ROWS.places, offset=ROWS.places.offset + 100))
    assert Learned("C", {("in", 0): (2, 6)}, 3_000, logged=True).rows(scored_again, "C") == 4
    assert Learned("C", {("in", 0): (2, 6)}, 3_000).rows(replace(scored_again, logged=False), "C") == 0


def test_the_provenance_states_whether_the_feature_log_was_read() -> None:
    config = {"training": {"snapshot": {"from": "features"}}}
    definition = learned(provenance(externalParameters={"config": config}))
    assert definition == Learned("C", {("in", 0): (2, 6)}, None, logged=True)


def test_the_provenance_of_a_run_has_its_training_rows() -> None:
    assert learned(provenance()) == Learned("C", {("in", 0): (2, 6)}, None)
    until = learned(provenance(internalParameters={"learned_until_ms": 4_000}))
    assert until is not None
    assert until.rows(ROWS, "C") == 3


@pytest.mark.parametrize(
    "changes", [{"buildType": "https://example.org/other"}, {"resolvedDependencies": []}, {"resolvedDependencies": [{}]}]
)
def test_other_provenances_have_no_training_rows(changes: dict[str, Any]) -> None:
    assert learned(provenance(**changes)) is None
    assert learned({}) is None
