"""The selection of scores, the progress of a job, and the ranges of the inputs that it reads. No broker."""

from itertools import pairwise
from typing import cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_registry.package.signature import InputField, Output, Signature, TensorInput
from publisher.errors import Fatal
from publisher.kafka.reader import TopicReader
from publisher.runtime.time_range import TimeRange
from scorer.rescore.counts import RescoreCounts
from scorer.rescore.job import open_sources
from scorer.rescore.job_progress import JobProgress, definition
from scorer.rescore.read_events import GAP, spans
from scorer.rescore.rescore_chunk import InputSources
from scorer.rescore.selection import ScoreSelection, read
from scorer.scores.decode_record import EventPosition, ScoreRecord
from tests.unit.scorer.minimal import minimal

DIGEST = "sha256:" + "ab" * 32
RECORD = ScoreRecord(
    id="e1", status="scored", version="1", digest=DIGEST, source=EventPosition("in", 0, 7), event_ms=5, scored_ms=1_000
)


def test_scores_are_selected_by_digest_status_and_time() -> None:
    assert ScoreSelection(DIGEST).includes(RECORD)
    assert not ScoreSelection("sha256:" + "cd" * 32).includes(RECORD)
    assert not ScoreSelection(DIGEST).includes(msgspec.structs.replace(RECORD, status="expired"))
    assert not ScoreSelection(DIGEST, ("expired",)).includes(RECORD)
    assert [ScoreSelection(DIGEST, window=TimeRange(*w)).includes(RECORD) for w in ((1_000, None), (None, 1_000))] == [
        True,
        False,
    ]


def test_selections_are_named_by_their_criteria() -> None:
    names = [
        ScoreSelection(DIGEST).name(),
        ScoreSelection(None, ("expired",)).name(),
        ScoreSelection(DIGEST, window=TimeRange(1, 2)).name(),
    ]
    assert names == ["abababababab", "expired", "abababababab-from-1-to-2"]


@pytest.mark.parametrize("value", [None, b"", b"[]", b"\xff", b'{"id": "e", "status": "scored"}'])
def test_a_value_that_is_not_a_score_record_is_none(value: bytes | None) -> None:
    assert read(value, bytes) is None


def test_further_fields_of_a_score_are_ignored() -> None:
    assert read(msgspec.json.encode({**msgspec.to_builtins(RECORD), "score": [1], "later": {}}), bytes) == RECORD


@given(st.sets(st.integers(0, 20 * GAP), max_size=50))
def test_spans_have_every_offset_once_and_no_long_gap(offsets: set[int]) -> None:
    ranges = spans(offsets)
    assert sorted(offsets) == [offset for low, high in ranges for offset in sorted(offsets) if low <= offset < high]
    assert all(low in offsets and high - 1 in offsets for low, high in ranges)
    assert all(later[0] - before[1] >= GAP for before, later in pairwise(ranges))


def test_a_job_continues_at_its_recorded_position_and_ignores_other_jobs() -> None:
    job, other_job, resumed_job = (JobProgress(minimal(), name) for name in ("a", "a-b", "a"))
    job_definition = definition(ScoreSelection(DIGEST), None, "out", "id")
    records = [
        job.begin(job_definition),
        job.move(2, 10, RescoreCounts(corrected=3, refused={"malformed": 1})),
        job.move(2, 20, RescoreCounts(corrected=1)),
    ]
    records += [other_job.begin({}), other_job.move(2, 99, RescoreCounts(unfit=5))]
    for _, value, key, *_ in records:
        resumed_job._apply(key or b"", value or b"")
    resumed_job.check("a", job_definition)
    assert (resumed_job.places[2].next, resumed_job.total()) == (20, RescoreCounts(corrected=4, refused={"malformed": 1}))
    with pytest.raises(Fatal, match=r"started with statuses \['fallback', 'scored'\], not \['expired'\]"):
        resumed_job.check("a", definition(ScoreSelection(DIGEST, ("expired",)), None, "out", "id"))


def test_a_feature_log_without_all_fields_of_the_version_is_not_read() -> None:
    fields = (InputField("a", "float32"), InputField("b", "float32"))
    signature = Signature((TensorInput("x", "float32", fields),), (Output(None, "score"),))
    settings = minimal(features={"topic": "f", "fields": ["a"]})
    assert open_sources(settings, signature, cast(TopicReader, None)) == InputSources()
