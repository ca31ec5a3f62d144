"""Records between versions: a reader skips fields that it does not know, and needs only fields that every version writes.

The rule is stated in deploy/upgrades.md.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from publisher.audit.audited_records import AuditedScore, SwapRecord
from publisher.relay.checkpoints import Checkpoint, Registration, SourceSnapshot
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.consumer.start_offsets import ScoredPartition
from scorer.lineage.reader import CutOverRecord
from scorer.observability.status_record import ScorerStatus
from scorer.rescore.job_progress import PartitionProgress
from scorer.rollout.controller.log_records import LogEntry, OperatorCommand, RolloutStatus
from scorer.scores.decode_record import CompleteScoreRecord

REQUIRED: dict[type[Any], set[str]] = {
    OffsetMetadata: set(),
    ScorerStatus: {
        "scorer",
        "region",
        "state",
        "heartbeat_ms",
        "started_ms",
        "pid",
        "partitions",
        "partitions.topic",
        "partitions.partition",
        "partitions.lag",
        "versions",
        "versions.model",
        "versions.version",
        "versions.digest",
        "versions.revision",
        "refused",
        "cost",
        "counters",
        *(f"tables.{name}" for name in ("table", "partition", "rows", "bytes", "position", "end", "lag_seconds", "restored")),
    },
    SwapRecord: {"topic", "partition", "cut_over_offset", "revision", "digest"},
    CutOverRecord: {"topic", "partition", "cut_over_offset", "revision", "digest"},
    ScoredPartition: {"topic", "partition"},
    AuditedScore: {"id", "status", "digest", "source", "source.topic", "source.partition", "source.offset"},
    CompleteScoreRecord: {
        "id",
        "status",
        "version",
        "digest",
        "source",
        "source.topic",
        "source.partition",
        "source.offset",
        "event_ms",
        "scored_ms",
    },
    Checkpoint: {"next", "cluster", "topic_id", "destination_cluster", "destination_topic", "destination_topic_id"},
    Registration: {"lanes", "instance", "what", "host", "pid", "at_ms"},
    SourceSnapshot: {
        "cluster",
        "asked_ms",
        "complete_ms",
        "ends",
        "ends.topic",
        "ends.partition",
        "ends.end",
        "groups",
        "groups.topic",
        "groups.partition",
        "groups.next",
    },
    LogEntry: {
        "at_ms",
        "by",
        "candidate.digest",
        "candidate.version",
        "champion.digest",
        "champion.version",
        "kind",
        "move.expects",
        "rollout",
        "seq",
        "starts.offset",
        "starts.partition",
        "starts.topic",
    },
    RolloutStatus: {"controller", "at_ms", "step"},
    OperatorCommand: {"verb", "by", "reason", "at_ms", "step"},
    PartitionProgress: {"next", "tally"},
}
"""The fields that a reader needs, by record. A field that is added later must have a default,
because older versions do not write it."""


def fields(type_: Any, prefix: str = "") -> Iterator[tuple[str, inspect.Field, inspect.StructType]]:
    """Yield the fields of a record type, and of the structs in it, with their paths."""
    if isinstance(type_, inspect.StructType):
        for field in type_.fields:
            yield f"{prefix}{field.encode_name}", field, type_
            yield from fields(field.type, f"{prefix}{field.encode_name}.")
        return
    inner = [getattr(type_, name, None) for name in ("item_type", "value_type")]
    for part in [*inner, *getattr(type_, "types", ()), *getattr(type_, "item_types", ())]:
        if part is not None:
            yield from fields(part, prefix)


@pytest.mark.parametrize("record", REQUIRED)
def test_a_record_needs_no_field_that_earlier_versions_do_not_write(record: type[Any]) -> None:
    assert {path for path, field, _ in fields(inspect.type_info(record)) if field.required} == REQUIRED[record]


@pytest.mark.parametrize("record", REQUIRED)
def test_a_reader_skips_fields_that_later_versions_write(record: type[Any]) -> None:
    structs = {id(struct): struct for _, _, struct in fields(inspect.type_info(record))}
    assert structs
    assert not any(struct.forbid_unknown_fields for struct in structs.values())


def test_the_metadata_of_a_later_version_keeps_its_known_fields() -> None:
    metadata = OffsetMetadata(owner="flights.a", revision=7, member="m")
    later = msgspec.json.encode(msgspec.to_builtins(metadata) | {"added": {"later": [1]}}).decode()
    assert OffsetMetadata.read(later) == metadata
