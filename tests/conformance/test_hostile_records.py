"""Every reader of records, metadata and registry documents raises only its documented errors for hostile input.

Accepted values are then used as in the product: written as JSON and drawn as a table.
"""

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import orjson
import pytest
from confluent_kafka import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_registry.channels import history, roles
from model_registry.errors import Corrupt, Misconfigured, RegistryError
from model_registry.oci import manifest
from model_registry.package import golden_examples
from model_registry.package.signature_schema import parse_signature
from model_registry.signing import bundle
from model_registry.untrusted_input.json_documents import UnreadableDocument
from publisher.audit import audited_records as audited
from publisher.audit.audited_records import DeletedTopicFilter
from publisher.audit.region_audit_io import decode_score as decode_region_score
from publisher.errors import Fatal
from publisher.kafka.partitions import Partition
from publisher.kafka.reader import PartitionBatch
from publisher.relay import checkpoints
from publisher.relay.checkpoints import Checkpoint, CheckpointLog, Registration, SourceSnapshot
from publisher.runtime.terminal import PlainConsole
from scorer.commands import status
from scorer.console import records as shown
from scorer.console.scorer_fold import ScorerFold
from scorer.console.state import ConsoleState
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.dead_letters import headers as dead_letters
from scorer.evaluation.label_record import Label, Unusable, reader
from scorer.observability import read_output_topics
from scorer.observability.status_record import ScorerStatus
from scorer.replay import read_dead_letter as dead_letter_parser
from scorer.replay.read_dead_letter import NotReplayable
from scorer.rescore import selection
from scorer.rescore.job_progress import JobProgress
from scorer.rollout.canary_analysis import answer_records as judged
from scorer.rollout.controller import rollout_tables
from scorer.rollout.controller.rollout_state import RolloutLog
from scorer.scores import avro_record, protobuf_record
from scorer.settings import load
from scorer.settings.labels import LabelSettings
from tests.support import hostile_records
from tests.unit.scorer.console import console_records

NOW = console_records.NOW
SCORE = orjson.dumps(
    {
        "id": "r/events/0/7",
        "score": 0.5,
        "decision": "late",
        "status": "scored",
        "model": "m",
        "version": "1.0.0",
        "digest": "sha256:" + "a" * 64,
        "role": "champion",
        "arm": "champion",
        "revision": 3,
        "source": {"topic": "events", "partition": 0, "offset": 7},
        "event_ms": 1,
        "scored_ms": 2,
        "region": "r",
    }
)
SWAP = orjson.dumps(
    {
        "scorer": "n.a",
        "topic": "events",
        "partition": 0,
        "cut_over_offset": 5,
        "version": "1.0.0",
        "digest": "sha256:" + "a" * 64,
        "revision": 3,
        "at_ms": 1,
        "topic_id": "id",
        "scores_from": [1],
        "letters_from": [1],
        "shares": {"canary": 5},
        "seed": "ab",
        "role": "champion",
    }
)
STATUS = msgspec.json.encode(console_records.status())
MARK = OffsetMetadata("n.a", 3, "1.0.0", "sha256:a", "id").encode()
CHECKPOINT = checkpoints.encode(Checkpoint(5, "c", "i", "d", "t", "j"))
REGISTRATION = checkpoints.encode(Registration(2, "me", "run", "host", 1, 1))
SOURCE_SNAPSHOT = checkpoints.encode(SourceSnapshot("c", 1, 1, (checkpoints.SourceEnd("t", 0, 5),), {"g": ()}))
ENTRY = orjson.dumps(
    {
        "rollout": "r1",
        "seq": 0,
        "kind": "started",
        "at_ms": 1,
        "by": "ann",
        "plan": {"candidate": "2.0.0", "steps": [{"promote": True}]},
        "champion": {"digest": "sha256:a", "version": "1"},
        "candidate": {"digest": "sha256:b", "version": "2"},
        "revision": 3,
    }
)
STATE = orjson.dumps({"controller": "c", "at_ms": 1, "step": 0, "baked": 1.0, "judgement": {"a": [1]}, "waits": ["x"]})
COMMAND = orjson.dumps({"verb": "pause", "by": "ann", "reason": "r", "at_ms": 1, "step": 0})
PLACE = orjson.dumps({"next": 5, "tally": {}})

SETTINGS = load(
    {
        "name": "n",
        "input": {"topics": ["events"]},
        "output": {"topic": "scores"},
        "model": {"source": "oci:/nowhere/m"},
        "kafka": {"bootstrap_servers": "localhost:1"},
    }
).settings


class OneTopic:
    """A reader of one partition with these records, with the methods that readers of whole topics call."""

    def __init__(self, topic: str, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        self._place = topic, 0
        self._messages = [Message(topic, 0, at, key, value) for at, (key, value) in enumerate(records)]

    def partitions(self, _: Sequence[str]) -> list[Partition]:
        """Return the one partition."""
        return [self._place]

    def earliest(self, _: object) -> dict[Partition, int]:
        """Return its start offset."""
        return {self._place: 0}

    def written(self, _: object) -> dict[Partition, int]:
        """Return its end offset."""
        return {self._place: len(self._messages)}

    def spans(self, _: object) -> dict[Partition, tuple[int, int]]:
        """Return its start and end offset."""
        return {self._place: (0, len(self._messages))}

    def read(self, _: object) -> Iterator[PartitionBatch]:
        """Yield all records at once."""
        yield PartitionBatch(self._place, list(range(len(self._messages))), self._messages)


hostile = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow])


def drawn(renderable: Any) -> None:
    """Draw the output of a command and assert that it contains no terminal control sequence."""
    out = io.StringIO()
    PlainConsole(file=out, width=200, force_terminal=False).print(renderable)
    assert not {"\x1b", "\x9b", "\u202e"} & set(out.getvalue())


@hostile
@given(hostile_records.metadata(MARK))
def test_commit_metadata_is_a_mark_or_none(metadata: str) -> None:
    mark = OffsetMetadata.decode(metadata)
    assert OffsetMetadata.decode(mark.encode()) == mark
    assert mark.revision >= 0


@hostile
@given(hostile_records.keys(b"m.a"), hostile_records.hostile(STATUS))
def test_status_records(key: bytes | None, value: bytes | None) -> None:
    fold = ScorerFold()
    for now in (NOW, NOW + 1):
        fold.add(key, STATUS, now)
        fold.add(key, value, now)
    scorers = [scorer for _, scorer in sorted(fold.last.items())]
    drawn(status.table("m", scorers, NOW, wide=True))
    orjson.dumps([msgspec.to_builtins(scorer.status) for scorer in scorers])
    fold.verdict(console_records.move(1, "1.0.0"), NOW)
    assert all(isinstance(scorer.status, ScorerStatus) for scorer in scorers)


@hostile
@given(hostile_records.hostile(SWAP))
def test_swap_records_of_the_audit(value: bytes | None) -> None:
    batch = PartitionBatch(("swaps", 0), [4], [Message("swaps", 0, 4, None, value)])
    ((offset, record),) = audited.decoded(batch, audited.decode_swap)
    assert offset == 4
    if record is not None:
        DeletedTopicFilter({"events": "id"}).add_swap(record)
        int(record.seed, 16)


@hostile
@given(hostile_records.hostile(SCORE))
def test_score_records_of_the_audits(value: bytes | None) -> None:
    batch = PartitionBatch(("scores", 0), [4], [Message("scores", 0, 4, None, value)])
    ((_, record),) = audited.decoded(batch, audited.decode_score)
    if record is not None:
        np.array([record.source.offset], np.int64)
    for _ in audited.decoded(batch, decode_region_score):
        pass


@hostile
@given(hostile_records.hostile(SCORE), hostile_records.hostile(SWAP))
def test_records_of_the_console(score: bytes | None, swap: bytes | None) -> None:
    state = ConsoleState()
    if (change := shown.decode(swap, shown.VersionChange)) is not None:
        state.swaps.add(change)
    if (record := shown.decode_score(score or b"")) is not None:
        state.scores.add(record)
        state.arms.add(record)
        state.labelled.add(record)
        state.flow.add(record, NOW, live=True)


@hostile
@given(hostile_records.hostile(SCORE))
def test_score_records_of_the_judge(value: bytes | None) -> None:
    values, rows = [SCORE, value, SCORE], np.arange(3)
    faults = judged.faults(values, rows, bytes)
    assert faults.keys() <= {1}
    readable = rows[~np.isin(rows, list(faults))]
    lanes = judged.group_by_partition(values, readable)
    assert sum(len(lane.rows) for lane in lanes.values()) == len(readable)
    for answer in judged.answers_at(values, readable):
        if isinstance(answer.score, int | float):
            float(answer.score)
    with contextlib.suppress(judged.UnreadableAnswer):
        judged.answers_at(values, rows)
    with contextlib.suppress(judged.UnreadableAnswer):
        judged.group_by_partition(values, rows)


@hostile
@given(hostile_records.hostile(SCORE))
def test_score_records_of_rescore_and_tail(value: bytes | None) -> None:
    if (record := selection.read(value, bytes)) is not None:
        selection.ScoreSelection().includes(record)
    lines = list(read_output_topics.score_lines([Message("s", 0, 1, None, SCORE), Message("s", 0, 2, None, value)], bytes))
    assert all(b"\n" not in line for line in lines)
    assert orjson.loads(b"[%b]" % b",".join(lines))


@hostile
@given(hostile_records.values() | st.binary(min_size=1, max_size=400))
def test_score_records_of_other_formats(value: bytes | None) -> None:
    for as_json in (avro_record.as_json, protobuf_record.as_json):
        with contextlib.suppress(ValueError):
            orjson.dumps(as_json(value or b"", 0, ()))


@hostile
@given(hostile_records.keys(b"rescore/j", b"rescore/j/0", b"rescore/j/x"), hostile_records.hostile(PLACE))
def test_the_progress_of_a_job_is_read_or_refused(key: bytes | None, value: bytes | None) -> None:
    progress = JobProgress(SETTINGS, "j")
    try:
        progress.read(OneTopic("rollouts", [(key, value)]))  # type: ignore[arg-type]
    except Fatal as error:
        refused = error.exit_code
    else:
        refused = 3
    assert refused == 3
    orjson.dumps(progress.definition)


@hostile
@given(
    st.lists(
        st.one_of(
            st.tuples(hostile_records.keys(b"r1/0", b"r1/1", b"r1/state"), hostile_records.hostile(ENTRY)),
            st.tuples(st.just(b"r1/state"), hostile_records.hostile(STATE)),
            st.tuples(st.just(b"r1/command/1"), hostile_records.hostile(COMMAND)),
        ),
        max_size=4,
    )
)
def test_records_of_rollouts(records: list[tuple[bytes | None, bytes | None]]) -> None:
    ledger = RolloutLog()
    ledger.apply(b"r1/0", ENTRY)
    for key, value in records:
        ledger.apply(key, value)
    for rollout in ledger.rollouts.values():
        orjson.dumps(rollout_tables.rollout_document(rollout))
        drawn(rollout_tables.rollout_tables(rollout, NOW))


@hostile
@given(hostile_records.keys(b"id"), hostile_records.hostile(b'{"id":"a","truth":1}'), hostile_records.headers("id"))
def test_labels(key: bytes | None, value: bytes | None, headers: list[tuple[str, str | bytes | None]]) -> None:
    for id_ in ("key", "id", "header:id"):
        read_label = reader(LabelSettings(topic="labels", id=id_, value="truth"))
        label = read_label(key, value, lambda: headers)
        assert isinstance(label, Label | Unusable)
        if isinstance(label, Label):
            label.id.encode()


OWN, OTHER = "own", "other"


def log_of(records: Sequence[tuple[bytes | None, bytes | None]], *, repairing: bool = False) -> CheckpointLog:
    return CheckpointLog(OneTopic("checkpoints", records), "checkpoints", OWN, repairing=repairing)  # type: ignore[arg-type]


@hostile
@given(hostile_records.keys(), hostile_records.hostile(CHECKPOINT))
def test_a_foreign_checkpoint_never_stops_a_relay(key: bytes | None, value: bytes | None) -> None:
    parts: tuple[tuple[str | int, ...], ...] = ((OTHER, "r", "t", 0), (OTHER,), (OTHER, checkpoints.SOURCE_SNAPSHOT))
    foreign = [checkpoints.encode_key(*each) for each in parts]
    log = log_of([(name, value) for name in (key, *foreign)])
    log.refresh()
    assert log.unreadable_positions() == []
    assert log.snapshot() is None


@hostile
@given(hostile_records.hostile(CHECKPOINT), hostile_records.hostile(REGISTRATION), hostile_records.hostile(SOURCE_SNAPSHOT))
def test_an_own_checkpoint_is_read_or_the_error_names_its_position(
    position: bytes | None, registration: bytes | None, snapshot: bytes | None
) -> None:
    records = [
        (checkpoints.encode_key(OWN, "r", "t", 0), position),
        (checkpoints.encode_key(OWN), registration),
        (checkpoints.encode_key(OWN, checkpoints.SOURCE_SNAPSHOT), snapshot),
    ]
    log, fatal = log_of(records), None
    try:
        log.refresh()
        log.snapshot()
    except Fatal as error:
        fatal = error
    assert (fatal is None) == (not log.unreadable)
    if fatal is not None:
        assert fatal.exit_code == 3
        assert "checkpoints[0]@" in str(fatal)
        assert fatal.hint


@hostile
@given(hostile_records.keys(), hostile_records.values(), hostile_records.headers(*dead_letters.DEAD_LETTER_HEADERS))
def test_dead_letters(key: bytes | None, value: bytes | None, headers: list[tuple[str, str | bytes | None]]) -> None:
    message = Message("dead", 0, 5, key, value, headers, timestamp=(1, 2**62))
    shown.dead_letter(message, headers)
    judged.read_dead_letter(headers)
    orjson.loads(read_output_topics.dead_letter_line(message))
    with contextlib.suppress(NotReplayable):
        dead_letter_parser.read_dead_letter(message, NoIds(), 0)


class NoIds:
    """An id reader of events without an id."""

    def read_id(self, value: bytes | None, headers: list[tuple[str, str | bytes | None]] | None = None) -> None:
        """Return no id."""


INDEX = b'{"schemaVersion":2,"mediaType":"%b","manifests":[{"mediaType":"a","digest":"sha256:%b","size":1}]}' % (
    manifest.INDEX_TYPE.encode(),
    b"a" * 64,
)
MANIFEST = manifest.encode(
    {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "a", "digest": "sha256:" + "a" * 64, "size": 2},
        "layers": [{"mediaType": "a", "digest": "sha256:" + "a" * 64, "size": 2, "annotations": {"a": "b"}}],
        "annotations": {"a": "b"},
    }
)
SIGNATURE = b'{"inputs":[{"tensor":"x","dtype":"float32","fields":["a"]}],"output":{"tensor":"y"}}'
GOLDEN = b'{"event":{"a":1},"score":0.5,"tolerance":0.1}'
STATEMENT = bundle.build_statement("sha256:" + "a" * 64, "https://x", {"a": 1}, ["m:1"])
DOCUMENTS: dict[str, tuple[bytes, Callable[[bytes], Any]]] = {
    "index": (INDEX, roles.parse),
    "manifest": (MANIFEST, lambda data: [manifest.parse(data), manifest.contents(data)]),
    "history": (MANIFEST, lambda data: history.decode(data, "prod", 1, "the entry")),
    "statement": (STATEMENT, bundle.parse_statement),
    "bundle": (b'{"mediaType":"a","dsseEnvelope":{"payload":"","payloadType":"a","signatures":[{"sig":""}]}}', bundle.parse),
    "signature": (SIGNATURE, parse_signature),
    "golden": (GOLDEN, lambda data: golden_examples.parse_lines(data, None)),
}


@pytest.mark.parametrize("name", DOCUMENTS)
@hostile
@given(data=st.data())
def test_documents_of_a_registry(name: str, data: st.DataObject) -> None:
    valid, parse = DOCUMENTS[name]
    document = data.draw(hostile_records.hostile(valid)) or b""
    with contextlib.suppress(RegistryError, Corrupt, Misconfigured):
        parse(document)


def test_every_literal_is_tried_in_every_field() -> None:
    damaged = dict(hostile_records.each_damaged(SWAP))
    assert damaged["NaN at revision"].count(b"NaN") == 1
    assert len(damaged) > 400
    for value in damaged.values():
        with contextlib.suppress(UnreadableDocument):
            audited.decode_swap(value)
