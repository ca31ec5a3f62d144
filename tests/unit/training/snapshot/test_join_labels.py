"""Events and their outcomes, joined and split: every rule that excludes a record, and every refusal."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Message

from model_registry.package.signature import Argmax, Decision, InputField, Output, Signature, TensorInput
from publisher.errors import REFUSED, USAGE, Fatal
from publisher.kafka.reader import PartitionBatch
from scorer.decoding import decoder_factory
from scorer.decoding.types import Decoder
from scorer.features.read import FeatureLogDecoder, decode_json
from scorer.settings import Settings
from tests.unit.scorer.minimal import minimal
from training.settings import EvaluationSection, TrainingSettings
from training.snapshot.files import Frozen, Kind, PartitionFile, finish, path_of
from training.snapshot.join_labels import Joined, class_counts, find_target, join, outcome_range, split
from training.snapshot.target import PredictionInterval, Target

DAY = 86_400_000
NOW = 1_700_000_000_000
EVENTS, LABELS = "in", "labels"
DECISION = Decision(0.5, "late", "on time")
FIELDS = (InputField("a", "float32"), InputField("carrier", "string", required=False, default=""))
SIGNATURE = Signature(
    tuple(TensorInput(field.name, field.dtype, (field,)) for field in FIELDS), (Output(None, "y", 1),), decision=DECISION
)
Record = tuple[float, bytes | None, bytes | None]
"""Days before the freeze, key and value."""


def event(number: int, days: float, **changes: Any) -> Record:
    return days, None, json.dumps({"id": f"e{number}", "a": float(number), "carrier": "UA", **changes}).encode()


def label(number: int, outcome: object, days: float = 0.5) -> Record:
    return days, b"e%d" % number, None if outcome is None else json.dumps({"label": outcome}).encode()


def training(**sections: Any) -> TrainingSettings:
    stated = {"scorer": "scorer.yaml", "snapshot": {"at_least": 3}} | sections
    return TrainingSettings.model_validate(stated)


class Bench:
    """Writes a snapshot of these records, by partition, and joins it."""

    def __init__(self, folder: Path, events: Sequence[Sequence[Record]], labels: Sequence[Sequence[Record]]) -> None:
        self.folder = folder
        spans = {EVENTS: [(0, len(records)) for records in events]}, {LABELS: [(0, len(records)) for records in labels]}
        self.frozen = Frozen(NOW, "cluster", {EVENTS: "1", LABELS: "2"}, *spans)
        records: dict[str, int] = {}
        kinds: tuple[tuple[Kind, str, Sequence[Sequence[Record]]], ...]
        kinds = (("events", EVENTS, events), ("labels", LABELS, labels))
        for kind, topic, partitions in kinds:
            for number, partition_records in enumerate(partitions):
                path = path_of(kind, (topic, number))
                file = PartitionFile(folder / path, 1 << 16)
                file.add(batch(topic, number, partition_records))
                file.close()
                records[path] = file.records
        finish(folder, self.frozen, records)

    def joined(self, settings: TrainingSettings | None = None, signature: Signature = SIGNATURE, **scorer: Any) -> Joined:
        stated: dict[str, Any] = {"input": {"id": "id"}, "labels": {"topic": LABELS}} | scorer
        configured = minimal(**stated)
        decoder: Decoder = decoder_factory.create_decoder(configured, signature)
        if settings is not None and settings.snapshot.from_ == "features":
            decoder = FeatureLogDecoder(signature, decode_json)
        return join(self.folder, self.frozen, configured, settings or training(), signature, decoder)


def batch(topic: str, partition: int, records: Sequence[Record]) -> PartitionBatch:
    columns = [
        Message(topic, partition, at, key, value, None, timestamp=(1, round(NOW - days * DAY)))
        for at, (days, key, value) in enumerate(records)
    ]
    return PartitionBatch((topic, partition), list(range(len(columns))), columns)


def numbers(joined: Joined) -> list[int]:
    return [int(number) for number in joined.rows.tensors["a"][:, 0]]


def with_both_classes(*more: Record) -> list[Record]:
    """Return labels of the events 0 and 1, one of each class, and these labels."""
    return [label(0, "on time"), label(1, "late"), *more]


FIRST = [event(0, 80), event(1, 79)]


def test_rows_are_in_the_order_of_time_with_their_positions(tmp_path: Path) -> None:
    events = [[event(2, 40), event(4, 20)], [event(0, 20), event(3, 30), event(1, 50, carrier="AA")]]
    labels = [[label(n, n % 2) for n in range(5)]]
    joined = Bench(tmp_path, events, labels).joined()
    assert numbers(joined) == [1, 2, 3, 4, 0]
    assert joined.rows.outcomes.tolist() == [1, 0, 1, 0, 0]
    assert joined.rows.tensors["carrier"][:, 0].tolist() == ["AA", "UA", "UA", "UA", "UA"]
    places = joined.rows.places
    assert (places.topics, places.partition.tolist(), places.offset.tolist()) == ((EVENTS,), [1, 0, 1, 0, 1], [2, 0, 1, 1, 0])
    assert places.time_ms.tolist() == [NOW - days * DAY for days in (50, 40, 30, 20, 20)]
    assert [json.loads(value)["id"] for value in joined.rows.values] == ["e1", "e2", "e3", "e4", "e0"]
    assert (joined.mature, joined.coverage, joined.target.classes) == (5, 1.0, ("on time", "late"))


def test_excluded_events_are_counted_by_reason(tmp_path: Path) -> None:
    events = [
        *FIRST,
        event(2, 90.001),
        event(3, 0.999),
        event(4, -1),
        event(5, 1, a="x"),
        (1.5, None, None),
        (1.5, b"k", b"{"),
        event(6, 1),
        event(7, 90),
    ]
    joined = Bench(tmp_path, [events], [with_both_classes(*(label(n, 1) for n in range(2, 8)))]).joined()
    assert numbers(joined) == [7, 0, 1, 6]
    assert joined.left_out.counts == {
        "before-window": 1,
        "immature": 1,
        "after-freeze": 1,
        "tombstone": 1,
        "wrong-type": 1,
        "malformed": 1,
    }
    assert joined.left_out.first["wrong-type"].startswith(f"{EVENTS}[0]@5: ")
    assert joined.labels.counts == {"without-usable-event": 4}


def logged(number: int, days: float, **inputs: str) -> Record:
    """Return the feature record of an event; `inputs` are JSON texts."""
    source = {"topic": EVENTS, "partition": 0, "offset": number}
    head = {"id": f"e{number}", "source": source, "event_ms": 1, "scored_ms": 2, "version": "v", "digest": "d"}
    named = ", ".join(f'"{name}": {text}' for name, text in inputs.items())
    return days, b"key", f'{json.dumps(head)[:-1]}, "inputs": {{{named}}}}}'.encode()


def test_rows_of_the_feature_log_are_the_logged_inputs_bit_for_bit(tmp_path: Path) -> None:
    texts = ["-0.0", "7.038531e-26", "0.1", "3.4028235e38", "1e-45"]
    records = [logged(number, 50 - number, a=text, carrier='"UA"') for number, text in enumerate(texts)]
    records.append(logged(9, 40, a="1.5"))
    labels = [label(number, number % 2) for number in (*range(5), 9)]
    joined = Bench(tmp_path, [records], [labels]).joined(training(snapshot={"at_least": 3, "from": "features"}))
    served = np.array([np.float32(text) for text in texts])
    served[1] = np.nextafter(served[1], np.float32(0))  # numpy rounds this text twice
    assert joined.rows.tensors["a"].tobytes() == served.tobytes()
    assert joined.rows.tensors["carrier"][:, 0].tolist() == ["UA"] * 5
    assert joined.left_out.counts == {"missing-field": 1}
    assert "has no input 'carrier'" in joined.left_out.first["missing-field"]
    assert joined.rows.logged
    assert joined.rows.select(np.array([1])).logged


def test_coverage_is_of_the_mature_events(tmp_path: Path) -> None:
    events = [*FIRST, event(2, 50), event(3, 40), event(4, 0.1), event(5, 95)]
    joined = Bench(tmp_path, [events], [with_both_classes(label(5, 1))]).joined()
    assert (joined.mature, len(joined.rows), joined.coverage) == (4, 2, 0.5)
    assert joined.summary() == {
        "mature": 4,
        "labelled": 2,
        "coverage": 0.5,
        "target": Target("binary", ("on time", "late")),
        "classes": {"on time": 1, "late": 1},
        "outcomes": {},
        "left_out": {"counts": {"immature": 1, "before-window": 1}, "first": {}},
        "labels": {"counts": {"without-usable-event": 1}, "first": {}},
    }


def test_the_newest_label_of_an_id_counts_and_conflicts_are_counted(tmp_path: Path) -> None:
    events = [*FIRST, *(event(n, 50 - n) for n in range(2, 8))]
    first_partition = with_both_classes(
        label(2, 0), label(2, 1), label(3, 1), label(3, "late"), label(4, 1), label(4, None), label(5, None), label(5, 0)
    )
    second_partition = [label(6, 0, days=3), label(7, 1)]
    last = [label(6, 1, days=2), label(7, 0, days=9)]
    joined = Bench(tmp_path, [events], [first_partition, second_partition, last]).joined()
    assert dict(zip(numbers(joined), joined.rows.outcomes.tolist(), strict=True)) == {0: 0, 1: 1, 2: 1, 3: 1, 5: 0, 6: 1, 7: 1}
    assert joined.labels.counts == {"replaced": 6, "conflicting": 3, "withdrawn": 1}
    assert joined.mature == 8


def test_a_label_counts_at_any_time(tmp_path: Path) -> None:
    early, late = label(0, 0, days=89), label(1, 1, days=-5)
    assert len(Bench(tmp_path, [FIRST], [[early, late]]).joined().rows) == 2


def test_unusable_labels_are_counted_by_reason(tmp_path: Path) -> None:
    unusable = [label(0, "purple"), label(0, 2), label(1, []), (0.5, b"e1", b"{"), (0.5, None, None), label(77, "purple")]
    joined = Bench(tmp_path, [FIRST], [with_both_classes(*unusable)]).joined()
    assert joined.rows.outcomes.tolist() == [0, 1]
    assert joined.labels.counts == {
        "unknown-class": 2,
        "no-value": 1,
        "not-json": 1,
        "tombstone-without-id": 1,
        "without-usable-event": 1,
    }
    assert joined.labels.first["unknown-class"] == f"{LABELS}[0]@2: 'purple'"


def test_of_events_with_one_id_the_newest_counts(tmp_path: Path) -> None:
    events = [[*FIRST, event(2, 60, a=1.0), event(2, 50, a=2.0)], [event(2, 55, a=3.0)]]
    joined = Bench(tmp_path, events, [with_both_classes(label(2, 1))]).joined()
    assert numbers(joined) == [0, 1, 2]
    assert (joined.mature, joined.left_out.counts) == (3, {"replaced": 2})


def test_ids_in_headers_and_positions_name_events_too(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [FIRST], [[(0.5, b"local/in/0/0", b'{"label": 0}'), (0.5, b"local/in/0/1", b'{"label": true}')]])
    assert bench.joined(input={"id": "header:ce_id"}).rows.outcomes.tolist() == [0, 1]


@pytest.mark.parametrize("changed_count", [3, 2])
def test_a_schema_that_changed_for_more_than_half_of_the_events_is_an_error(changed_count: int, tmp_path: Path) -> None:
    changed = [(30.0, None, b'{"id": "e9", "b": 1}')] * (changed_count - 1) + [(30.0, None, b"{")]
    bench = Bench(tmp_path, [[*FIRST, *changed]], [with_both_classes()])
    if changed_count == 2:
        assert bench.joined().left_out.counts == {"missing-field": 1, "malformed": 1}
        return
    with pytest.raises(Fatal) as raised:
        bench.joined()
    assert str(raised.value).startswith("3 of 5 events cannot be decoded, 2 of them missing-field, the first at in[0]@2: ")
    assert (raised.value.exit_code, "if their schema changed" in raised.value.hint) == (REFUSED, True)


def test_a_snapshot_without_events_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="has no event to train on; left out: immature 1") as raised:
        Bench(tmp_path, [[event(0, 0.5)]], [with_both_classes()]).joined()
    assert raised.value.exit_code == REFUSED


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([label(0, 1), label(1, 1)], "the snapshot has no event of class 'on time' among 2 labelled events"),
        ([label(9, 1)], "the snapshot has no event of class 'on time' or of class 'late' among 0 labelled events"),
    ],
)
def test_a_class_without_an_event_is_named(labels: list[Record], message: str, tmp_path: Path) -> None:
    with pytest.raises(Fatal) as raised:
        Bench(tmp_path, [FIRST], [labels]).joined()
    assert str(raised.value).startswith(message)
    assert raised.value.exit_code == REFUSED


def test_classes_are_configured_or_the_decisions_of_the_signature() -> None:
    undecided = Signature(SIGNATURE.inputs, SIGNATURE.outputs)
    argmax = Signature(SIGNATURE.inputs, (Output(None, "y"),), labels=("no", "yes"), decision=Argmax())
    configured = minimal(labels={"topic": LABELS, "classes": ["off", "on"]})
    assert find_target(minimal(), SIGNATURE) == Target("binary", ("on time", "late"))
    assert find_target(minimal(), argmax) == Target("binary", ("no", "yes"))
    assert find_target(minimal(), undecided) == Target("binary", ("0", "1"))
    assert find_target(configured, SIGNATURE) == Target("binary", ("off", "on"))
    three = minimal(labels={"topic": LABELS, "classes": ["a", "b", "c"]})
    assert find_target(three, undecided) == Target("classes", ("a", "b", "c"))
    assert find_target(minimal(labels={"topic": LABELS, "kind": "number"}), SIGNATURE) == Target("regression")


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (["a", "b", "c"], "labels.classes are ['a', 'b', 'c'], but the signature's are ['on time', 'late']"),
        (["late", "on time"], "labels.classes are ['late', 'on time'], but the signature's are ['on time', 'late']"),
    ],
)
def test_other_classes_than_the_signature_has_are_refused(classes: list[str], message: str) -> None:
    with pytest.raises(Fatal) as raised:
        find_target(minimal(labels={"topic": LABELS, "classes": classes}), SIGNATURE)
    assert (str(raised.value), raised.value.exit_code) == (message, USAGE)


NUMBERS = minimal(labels={"topic": LABELS, "kind": "number"})
BOUNDS = tuple(Output(name, name, index) for name, index in (("y", 0), ("low", 0), ("high", 0), ("row", None)))
THREE_OUTPUTS = Signature(SIGNATURE.inputs, (*BOUNDS[:3], replace(BOUNDS[3], shape=(4,))))


def evaluation(**stated: Any) -> EvaluationSection:
    return EvaluationSection.model_validate(stated)


def test_target_of_numbers_has_the_quantile_and_the_interval_of_the_settings() -> None:
    stated = evaluation(quantile=0.9, interval={"low": "low", "high": "high", "level": 0.8})
    target = find_target(NUMBERS, THREE_OUTPUTS, stated)
    assert target == Target("regression", quantile=0.9, interval=PredictionInterval("low", "high", 0.8))
    assert find_target(minimal(), SIGNATURE, evaluation()) == find_target(minimal(), SIGNATURE)


@pytest.mark.parametrize(
    ("settings", "stated", "message", "hint"),
    [
        (
            NUMBERS,
            {"low": "y", "high": "hi"},
            "evaluation.interval.high is 'hi', but the signature has no such",
            "y, low, high",
        ),
        (NUMBERS, {"low": "row", "high": "high"}, "evaluation.interval.low is 'row', but this output is a row", "index"),
        (minimal(), {"low": "low", "high": "high"}, 'evaluation.interval is {"low":"low","high":"high","level":0.8}, but', "2"),
    ],
)
def test_intervals_without_such_outputs_or_numbers_are_refused(
    settings: Settings, stated: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(Fatal) as raised:
        find_target(settings, THREE_OUTPUTS, evaluation(interval={**stated, "level": 0.8}))
    assert (message in str(raised.value), raised.value.exit_code) == (True, USAGE)
    assert hint in f"{raised.value}; {raised.value.hint}"


def test_quantile_of_classes_is_refused_with_its_value() -> None:
    with pytest.raises(Fatal, match=r"evaluation\.quantile is 0\.9, but the labels are 2 classes: 'on time', 'late'") as raised:
        find_target(minimal(), SIGNATURE, evaluation(quantile=0.9))
    assert "labels.kind: number" in raised.value.hint


def test_names_of_classes_are_no_numbers() -> None:
    argmax = Signature(SIGNATURE.inputs, (Output(None, "y"),), labels=("no", "yes", "maybe"), decision=Argmax())
    with pytest.raises(Fatal, match=r"labels\.kind is number, but the signature decides among no, yes, maybe"):
        find_target(minimal(labels={"topic": LABELS, "kind": "number"}), argmax)
    assert find_target(minimal(), argmax) == Target("classes", ("no", "yes", "maybe"))
    turned = minimal(labels={"topic": LABELS, "classes": ["maybe", "yes", "no"]})
    with pytest.raises(Fatal, match="but the signature's are") as raised:
        find_target(turned, argmax)
    assert "the columns of the score have the order" in raised.value.hint


def test_labels_of_several_classes_are_indices_of_their_names(tmp_path: Path) -> None:
    labels = [[label(0, "b"), label(1, "c"), label(2, 0), label(3, "d"), label(2, "c")]]
    events = [[*FIRST, event(2, 50), event(3, 40)]]
    signature = Signature(SIGNATURE.inputs, SIGNATURE.outputs)
    joined = Bench(tmp_path, events, labels).joined(signature=signature, labels={"topic": LABELS, "classes": ["b", "c"]})
    assert joined.target.kind == "binary"
    classes = {"topic": LABELS, "classes": ["a", "b", "c"]}
    with pytest.raises(Fatal, match="the snapshot has no event of class 'a' among 3 labelled events"):
        Bench(tmp_path / "without", events, labels).joined(signature=signature, labels=classes)
    complete = [[*labels[0], label(3, "a")]]
    joined = Bench(tmp_path / "every", events, complete).joined(signature=signature, labels=classes)
    assert joined.rows.outcomes.dtype == np.int16
    assert joined.rows.outcomes.tolist() == [1, 2, 2, 0]
    assert class_counts(joined.rows) == {"a": 1, "b": 1, "c": 2}
    assert (joined.labels.counts["conflicting"], joined.labels.counts["unknown-class"]) == (1, 1)


def test_labels_of_a_regression_are_numbers(tmp_path: Path) -> None:
    labels = [[label(0, 1.5), label(1, -3), label(2, "late"), label(3, True), label(3, None)]]
    events = [[*FIRST, event(2, 50), event(3, 40)]]
    joined = Bench(tmp_path, events, labels).joined(labels={"topic": LABELS, "kind": "number"})
    assert joined.rows.outcomes.dtype == np.float64
    assert joined.rows.outcomes.tolist() == [1.5, -3.0]
    assert outcome_range(joined.rows) == {"mean": -0.75, "deviation": 2.25, "minimum": -3.0, "maximum": 1.5}
    assert (joined.labels.counts["no-number"], joined.labels.counts["withdrawn"]) == (1, 1)
    assert joined.rows.digest() != replace(joined.rows, outcomes=joined.rows.outcomes + 1e-9).digest()


def test_numbers_that_are_all_equal_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="the snapshot has fewer than two different labels among 2 labelled events: 4"):
        Bench(tmp_path, [FIRST], [[label(0, 4), label(1, 4)]]).joined(labels={"topic": LABELS, "kind": "number"})


def spread(days: Iterable[float]) -> tuple[list[Record], list[Record]]:
    """Return events of these ages in days, and labels of both classes in turn."""
    ages = list(days)
    return [event(n, age) for n, age in enumerate(ages)], [label(n, n % 2) for n in range(len(ages))]


def test_parts_are_split_by_time_to_the_millisecond(tmp_path: Path) -> None:
    millisecond = 1 / DAY
    ages = [60, 50, 29, 29 - millisecond, 20, 15, 15 - millisecond, 1]
    events, labels = spread(ages)
    parts = split(Bench(tmp_path, [events], [labels]).joined(), training())
    columns = [[round((NOW - time) / DAY, 9) for time in part.places.time_ms.tolist()] for part in parts]
    assert columns == [[60, 50, 29], [round(29 - millisecond, 9), 20, 15], [round(15 - millisecond, 9), 1]]
    assert [part.outcomes.tolist() for part in parts] == [[0, 1, 0], [1, 0, 1], [0, 1]]


def test_too_few_rows_are_refused_with_counts(tmp_path: Path) -> None:
    events, labels = spread([60, 50, 28, 20, 14, 1])
    joined = Bench(tmp_path, [[*events, event(9, 0.1)]], [labels]).joined()
    with pytest.raises(Fatal) as raised:
        split(joined, training(snapshot={"at_least": 7}))
    message = "6 labelled events are too few (training 2, validation 2, hold-out 2); snapshot.at_least is 7"
    assert str(raised.value) == f"{message}; events left out: immature 1; labels: none"
    assert raised.value.exit_code == REFUSED


@pytest.mark.parametrize(
    ("ages", "message"),
    [
        ([60, 50, 28, 20, 14], "the part hold-out (14d) has no event of class 'late' among 1 labelled events"),
        ([60, 50, 28, 27, 26, 25], "the part hold-out (14d) has no event of class 'on time' or of class 'late' among 0"),
        ([60, 28, 20, 14, 10], "the part training has no event of class 'late' among 1 labelled events"),
    ],
)
def test_a_class_that_vanished_from_a_part_is_named(ages: list[float], message: str, tmp_path: Path) -> None:
    events, labels = spread(ages)
    joined = Bench(tmp_path, [events], [labels]).joined()
    with pytest.raises(Fatal) as raised:
        split(joined, training())
    assert str(raised.value).startswith(message)
    assert (raised.value.exit_code, "training " in str(raised.value)) == (REFUSED, True)


def test_a_damaged_snapshot_is_not_joined(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [FIRST], [with_both_classes()])
    path = tmp_path / path_of("labels", (LABELS, 0))
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(Fatal, match="has changed since it was written"):
        bench.joined()


def test_fields_from_headers_keys_and_times_are_read_as_the_scorer_reads_them(tmp_path: Path) -> None:
    field = InputField("at", "float64", source="time")
    inputs = (*SIGNATURE.inputs, TensorInput("at", "float64", (field,)))
    joined = Bench(tmp_path, [FIRST], [with_both_classes()]).joined(
        signature=Signature(inputs, SIGNATURE.outputs, decision=DECISION)
    )
    assert np.array_equal(joined.rows.tensors["at"][:, 0], joined.rows.places.time_ms)
