"""The loop over a scripted group: its publishes, their offset metadata, and its end."""

from collections import Counter
from typing import Any
from unittest.mock import Mock, create_autospec

import orjson
import pytest

from model_registry.channels.channel import Resolution
from publisher.errors import Aborted
from publisher.runtime.dependency_wait import MODEL_SERVERS, DependencyUnavailable
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.consumer.start_offsets import AnswerStartOffsets
from scorer.decoding.batch import Batch
from scorer.decoding.types import LookUpsPending
from scorer.models.constant_fallback import FALLBACK
from scorer.models.servable import CanaryArm
from scorer.models.traffic_split import TrafficSplit
from scorer.settings.model import FallbackSettings
from scorer.tables.tables import Tables
from scorer.worker.score_batch import ScoredBatch
from tests.unit.scorer.consumer.group import end, event
from tests.unit.scorer.worker.looped import PARTITION, SETTINGS, Looped


def test_a_batch_is_claimed_scored_and_published_with_its_offsets() -> None:
    looped = Looped()
    looped.group.waiting += [event(7), event(8)]
    looped.run(1)
    owner = SETTINGS.owner
    assert looped.published() == [([], [(7, owner)]), (["out", "out"], [(9, owner)]), ([], [(9, "")])]
    assert looped.group.intake.partitions.committed() == {PARTITION: 9}
    assert looped.metrics.batches._value.get() == 1


def test_a_partition_is_fetched_once_its_claim_is_committed() -> None:
    looped = Looped()
    paused = []
    looped.session.checkpoint.side_effect = lambda: paused.append(looped.group.paused())
    looped.loop.step()
    assert (paused, looped.group.paused()) == ([{0}], set())


def test_positions_past_markers_are_committed_without_an_event_once_and_at_the_end() -> None:
    looped = Looped()
    owner = SETTINGS.owner
    looped.group.waiting += [event(7), end(8), end(10)]
    looped.run(1)
    assert looped.published() == [([], [(7, owner)]), (["out"], [(8, owner)]), ([], [(10, owner)]), ([], [(10, "")])]
    assert looped.group.intake.partitions.committed() == {PARTITION: 10}
    looped.run(3)
    assert len(looped.published()) == 4  # there are no positions to commit


def test_the_first_batch_of_another_version_has_a_swap_record_with_its_offset() -> None:
    looped = Looped(OffsetMetadata("flights.b", 1, "0.9", "old"), AnswerStartOffsets([3], [4]))
    for offset in (7, 8):
        looped.group.waiting.append(event(offset))
        looped.run(1)
    messages = [record for call in looped.session.publish.call_args_list for record in call.args[0] if record[0] != "out"]
    assert [(topic, key) for topic, _, key, *_ in messages] == [("flights.swaps", b"flights/0")]
    swap = orjson.loads(messages[0][1])
    assert (swap["cut_over_offset"], swap["from_version"], swap["from_digest"]) == (7, "0.9", "old")
    assert (swap["version"], swap["role"], swap["revision"], swap["reason"]) == ("1", "champion", 1, "faster")
    assert (swap["topic_id"], swap["scores_from"], swap["letters_from"]) == ("one", [3], [4])


@pytest.mark.parametrize(("before", "count"), [("b" * 16, 1), ("a" * 16, 0), ("", 0)])
def test_the_same_revision_of_another_history_of_the_channel_gets_a_swap_record(before: str, count: int) -> None:
    looped = Looped(OffsetMetadata("flights.b", 1, "1", "d", history=before))
    looped.champion.resolution = Resolution("d", "1", 1, history="a" * 16)
    looped.group.waiting.append(event(7))
    looped.run(1)
    messages = [record for call in looped.session.publish.call_args_list for record in call.args[0] if record[0] != "out"]
    assert [orjson.loads(message[1])["history"] for message in messages] == ["a" * 16] * count
    assert looped.group.intake.partitions.metadata(PARTITION).history == "a" * 16


def test_a_partition_has_a_swap_record_of_a_canary_that_is_refused_here() -> None:
    """Another scorer of the group may accept the canary, and writes no swap record for a revision that the partition has."""
    looped = Looped(OffsetMetadata("flights.b", 1, "0.9", "old"))
    digest = f"sha256:{7:064x}"
    looped.versions.canary = CanaryArm(digest, 20, TrafficSplit.of(digest, 20), None, "2")
    looped.group.waiting.append(event(7))
    looped.run(1)
    messages = [record for call in looped.session.publish.call_args_list for record in call.args[0] if record[0] != "out"]
    swaps = [orjson.loads(record[1]) for record in messages]
    assert [(swap["role"], swap["version"], swap["digest"]) for swap in swaps] == [
        ("champion", "1", "d"),
        ("canary", "2", digest),
    ]
    assert {(swap["revision"], swap["cut_over_offset"], swap["shares"]["canary"]) for swap in swaps} == {(1, 7, 20)}


def test_the_first_dead_letters_of_a_reason_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    looped = Looped()
    letter = ("out", b"1", None, 0, 1, None)
    for offset, reasons in ((7, {}), (8, {"malformed": 1}), (9, {"malformed": 1, "not-utf8": 2}), (10, {"malformed": 1})):
        looped.scoring.score.side_effect = None
        looped.scoring.score.return_value = ScoredBatch([letter], reasons=Counter(reasons))
        looped.group.waiting.append(event(offset))
        looped.run(1)
    messages = [record.getMessage() for record in caplog.records if record.name == "scorer.worker.batch_metrics"]
    assert messages == [
        f"first dead letters with the reason {expected}; `scorer tail --dead` prints them, later dead letters are only counted"
        for expected in ("malformed (1)", "not-utf8 (2)")
    ]


def test_a_batch_that_became_stale_while_it_was_scored_is_not_published() -> None:
    looped = Looped()

    def score(batch: Any, *_: Any) -> ScoredBatch:
        looped.group.revoke(0)
        looped.group.assign(0)
        return ScoredBatch([("out", b"1", None, 0, 1, None)] * len(batch))

    looped.scoring.score.side_effect = score
    looped.group.waiting.append(event(7))
    looped.run(1)
    assert "out" not in [topic for topics, _ in looped.published() for topic in topics]
    assert looped.group.reads == {PARTITION: 7}


def test_a_batch_whose_table_rows_became_too_old_while_it_was_scored_is_read_again() -> None:
    tables = create_autospec(Tables, instance=True)
    tables.waiting.return_value = {}
    tables.recent_until.side_effect = [float("-inf"), float("inf")]
    looped = Looped(tables=tables)
    looped.group.waiting.append(event(7))
    looped.run(1)
    assert [topics for topics, _ in looped.published() if topics] == []
    assert looped.group.reads == {PARTITION: 7}
    looped.group.waiting.append(event(7))
    looped.run(1)
    assert [topics for topics, _ in looped.published() if topics] == [["out"]]
    assert looped.group.intake.partitions.committed() == {PARTITION: 8}


def test_events_that_cannot_be_scored_now_are_read_again() -> None:
    looped = Looped()
    looped.scoring.score.side_effect = DependencyUnavailable(MODEL_SERVERS, "no route", retry_seconds=60.0)
    looped.group.waiting.append(event(7))
    looped.run(2)
    assert looped.group.paused() == {0}
    assert looped.metrics.outages.summary() == "model-servers: no route"
    assert looped.group.intake.partitions.committed() == {PARTITION: 7}


def test_a_fallback_answers_for_unavailable_model_servers() -> None:
    model = SETTINGS.model.model_copy(update={"fallback": FallbackSettings(score=0.5, after_ms=0)})
    looped = Looped(settings=SETTINGS.model_copy(update={"model": model}))
    looped.scoring.score.side_effect = DependencyUnavailable(MODEL_SERVERS, "no route", retry_seconds=60.0)
    looped.scoring.fall_back.side_effect = lambda *_: ScoredBatch([("out", b"0.5", None, 0, 1, None)], FALLBACK)
    for offset in (7, 8):
        looped.group.waiting.append(event(offset))
        looped.loop.step()
    looped.loop.step()
    assert (looped.scoring.score.call_count, looped.scoring.fall_back.call_count) == (
        1,
        2,
    )  # the servers are tried again after a minute
    assert looped.metrics.outages.is_unavailable(MODEL_SERVERS)
    assert looped.metrics.outages.summary() is None
    assert looped.group.intake.partitions.committed() == {PARTITION: 9}


def test_a_batch_that_waits_too_long_for_its_schemas_is_read_again_in_parts() -> None:
    looped = Looped()
    score_all, sizes = looped.scoring.score.side_effect, []

    def score(batch: Batch, *arguments: object) -> ScoredBatch:
        sizes.append(len(batch))
        if len(batch) > 1:
            raise LookUpsPending("5 look-ups are pending")
        scored: ScoredBatch = score_all(batch, *arguments)
        return scored

    looped.scoring.score.side_effect = score
    for _ in range(2):
        looped.group.reads.clear()
        looped.group.waiting += [event(offset) for offset in range(7, 11)]
        looped.loop.step()
        assert looped.group.reads == {PARTITION: 7}
        assert looped.metrics.outages.summary() is None  # the registry answers
        looped.group.waiting.clear()
    looped.group.waiting += [event(offset) for offset in range(7, 11)]
    looped.run(1)
    assert sizes == [4, 2, 1]
    assert looped.group.intake.partitions.committed() == {PARTITION: 8}


def test_a_partition_that_a_newer_revision_has_scored_is_not_read() -> None:
    looped = Looped(OffsetMetadata("flights.b", 2))
    looped.run(1)
    assert looped.group.paused() == {0}
    assert looped.versions.poll_now.called


@pytest.mark.parametrize("failing", ["wait_for_publish", "checkpoint"])
def test_no_record_is_published_after_a_failed_last_commit(failing: str) -> None:
    looped = Looped()
    getattr(looped.session, failing).side_effect = Aborted("the broker gave up the transaction")
    assert not looped.run(0), "not every score is committed"
    assert looped.published() == []


def test_a_stop_while_a_failed_batch_is_not_repeated_yet_reports_scores_that_are_not_committed() -> None:
    looped = Looped()
    looped.session.publish.side_effect = Aborted("the broker gave up the transaction")
    assert not looped.run(1)


def test_after_a_clean_shutdown_the_partitions_have_no_owner() -> None:
    looped = Looped()
    assert looped.run(0), "every score is committed"
    assert looped.published() == [([], [(7, "")])]


def test_a_flip_is_counted_and_reported_at_once() -> None:
    looped, on_flip = Looped(), Mock()
    looped.versions.serve_aspired.side_effect = [False, True, False]
    remaining = iter(range(3))
    looped.loop.run(lambda: next(remaining, None) is None, on_flip)
    assert on_flip.call_count == 2, "at the first step, and after the flip"
    assert looped.metrics.swaps._value.get() == 1
