"""Join the events of a snapshot with their labels by id, and split the labelled events by time.

An event is omitted and counted if its Kafka timestamp is before the window, after the freeze, or less than `labels.after`
before the freeze. A label is used whatever its timestamp is, even if the label is older than its event.

If an id has several labels, first the last label in each partition is selected. Then the selected label with the latest
timestamp is used. If the value of this label is null, the label is withdrawn, and the event has no label. If an id has several
events, one event is chosen in the same way.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from model_registry.package.field_sources import fields_outside_value
from model_registry.package.signature import Decision, Signature
from publisher.errors import REFUSED, USAGE, Fatal
from publisher.kafka.partitions import Partition
from scorer.dead_letters.reasons import Reason
from scorer.decoding.batch import Headers
from scorer.decoding.event_id import event_id
from scorer.decoding.headers import NO_HEADER_VALUES, HeaderValues
from scorer.decoding.record_metadata import ListedMetadata
from scorer.decoding.types import Decoder
from scorer.evaluation import latest_by_id
from scorer.evaluation.class_names import BINARY, Classes
from scorer.evaluation.label_columns import RecordPosition
from scorer.evaluation.label_record import Label, Unusable, reader
from scorer.evaluation.labelled_comparison import classes_of as decided
from scorer.evaluation.latest_by_id import NewestRows
from scorer.settings import Settings
from training.settings import EvaluationSection, TrainingSettings, written
from training.snapshot.files import Copied, Frozen, batches, verified
from training.snapshot.rows import Beside, LabelledRows, Places, Split
from training.snapshot.skip_counts import SkipCounts
from training.snapshot.target import ZERO_OR_ONE, PredictionInterval, Target

Columns = dict[str, list[Any]]
OutcomeReader = Callable[[str | float], float | Unusable]
"""Converts the value of a label to an outcome, or returns the reason why it is unusable."""
WITHOUT_EVENT = "without-usable-event"
CONFLICTING = "conflicting"
WITHDRAWN = "withdrawn"
REPLACED = "replaced"
PARTS = ("training", "validation", "hold-out")


@dataclass(frozen=True)
class Joined:
    """The result of the join: the labelled events, and the counts of other records.

    Attributes:
        rows: The labelled events, in order of (time, topic, partition, offset).
        mature_times: (M,) int64, ascending: the Kafka timestamps of all mature events, one per id, with and without a label.
        mature_ms: The time (Unix ms) up to which events are mature: old enough to have a label.
        left_out: The counts of omitted events by reason.
        labels: The counts of labels that were not used, by reason.
    """

    rows: LabelledRows
    mature_times: NDArray[np.int64]
    mature_ms: int
    left_out: SkipCounts
    labels: SkipCounts

    @property
    def target(self) -> Target:
        """The target of the labels."""
        return self.rows.target

    @property
    def mature(self) -> int:
        """The number of mature events: those old enough to have a label."""
        return len(self.mature_times)

    @property
    def coverage(self) -> float:
        """The share of the mature events that have a label."""
        return len(self.rows) / self.mature

    def summary(self) -> dict[str, Any]:
        """Return the counts as a JSON document."""
        return {
            "mature": self.mature,
            "labelled": len(self.rows),
            "coverage": self.coverage,
            "target": self.target,
            "classes": class_counts(self.rows),
            "outcomes": outcome_range(self.rows),
            "left_out": {"counts": dict(self.left_out.counts), "first": self.left_out.first},
            "labels": {"counts": dict(self.labels.counts), "first": self.labels.first},
        }


def join(
    folder: Path,
    frozen: Frozen,
    settings: Settings,
    training: TrainingSettings,
    signature: Signature,
    decoder: Decoder,
    others: Sequence[Signature] = (),
) -> Joined:
    """Join the events of the snapshot in this folder with their labels.

    Keys and headers are kept if `signature` or one of `others` reads them. `others` are the signatures of other versions that
    will score the rows. With `snapshot.from: features`, the events are records of the feature log, which `decoder` decodes, and
    no keys and headers are kept.

    Raises:
        Fatal: Exit code 3 if the snapshot is incomplete, more than half of the events cannot be decoded, a class has no event,
            or all labels of a regression are equal; 2 if the labels and the signature contradict each other.
    """
    target = find_target(settings, signature, training.evaluation)
    copied = verified(folder, frozen)
    beside = training.snapshot.from_ == "events" and any(map(fields_outside_value, (signature, *others)))
    events = _Events(settings, frozen, training, decoder, beside)
    for partition, columns in batches(folder, copied, "events"):
        events.add(partition, columns)
    events.check()
    newest = events.rows.newest()
    events.left_out.add(REPLACED, newest.replaced)
    truths, unused = _truths(folder, copied, settings, _outcome_reader(settings, signature, target), newest)
    event_rows, label_rows = newest.joined(truths)
    truth = truths.columns["truth"][label_rows] if len(truths) else np.empty(0)
    unused.add(WITHDRAWN, int(np.isnan(truth).sum()))
    labelled = ~np.isnan(truth)
    rows = events.chosen(newest, event_rows[labelled], truth[labelled].astype(target.dtype), target)
    joined = Joined(rows, np.sort(newest.columns["time"]), events.mature_ms, events.left_out, unused)
    remark = f"events left out: {events.left_out}; labels: {unused}"
    if unknown := unused.first.get(Unusable.UNKNOWN_CLASS):
        remark += f"; the first label of an unknown class is {unknown}: set labels.classes, or labels in the signature"
    _check_outcomes("the snapshot", joined.rows, len(target.classes), remark)
    return joined


NO_EVALUATION = EvaluationSection()


def find_target(settings: Settings, signature: Signature, evaluation: EvaluationSection = NO_EVALUATION) -> Target:
    """Return the target of the labels.

    It is a regression if `labels.kind` is `number`. Otherwise the classes are from the first source that is set:
    `labels.classes`, the signature's decision or labels, or 0 and 1.

    The signature must have the same classes in the same order. If there are two, their names in the signature may differ.

    Raises:
        Fatal: The signature has other classes, `labels.kind` is `number` and the signature decides among classes without a
            threshold, or `evaluation` does not fit the labels or the outputs (exit code 2).
    """
    target = _labelled_target(settings, signature)
    stated = {name: value for name, value in evaluation if value is not None}
    if not stated:
        return target
    if target.kind != "regression":
        name, value = next(iter(stated.items()))
        text = f"{value:g}" if isinstance(value, float) else msgspec.json.encode(value.model_dump()).decode()
        message = f"evaluation.{name} is {text}, but the labels are {len(target.classes)} classes: "
        hint = f"remove evaluation.{name}, or set labels.kind: number in the configuration of the scorer"
        raise Fatal(message + ", ".join(map(repr, target.classes)), hint, USAGE)
    return replace(target, quantile=evaluation.quantile, interval=_interval(signature, evaluation))


def _interval(signature: Signature, evaluation: EvaluationSection) -> PredictionInterval | None:
    """Return the interval of the settings. Raises Fatal (exit code 2) if the signature has no such outputs of one number."""
    stated = evaluation.interval
    if stated is None:
        return None
    outputs = {output.name: output for output in signature.outputs if output.name is not None}
    for key, name in (("low", stated.low), ("high", stated.high)):
        output = outputs.get(name)
        if output is None:
            hint = f"name one of the outputs in the signature: {', '.join(outputs) or 'none has a name'}"
            raise Fatal(f"evaluation.interval.{key} is {name!r}, but the signature has no such output", hint, USAGE)
        if output.top or (output.index is None and output.shape not in (None, ())):
            hint = "name an output of one number, or state its column as index in the signature"
            raise Fatal(f"evaluation.interval.{key} is {name!r}, but this output is a row of numbers", hint, USAGE)
    return PredictionInterval(stated.low, stated.high, stated.level)


def _labelled_target(settings: Settings, signature: Signature) -> Target:
    configured = settings.labels.classes
    signature_names = tuple(decided(signature))
    if settings.labels.kind == "number":
        if signature_names and not isinstance(signature.decision, Decision):
            hint = "remove labels.kind, or give a signature whose score is one number"
            raise Fatal(f"labels.kind is number, but the signature decides among {', '.join(signature_names)}", hint, USAGE)
        return Target("regression")
    names = tuple(configured) or signature_names
    if not names:
        return ZERO_OR_ONE
    if len(names) == 2 and names == tuple(reversed(signature_names)):
        hint = "the second class is that of a high score: reverse one of the two lists"
        raise Fatal(f"labels.classes are {list(names)}, but the signature's are {list(signature_names)}", hint, USAGE)
    if signature_names and len(signature_names) != len(names):
        hint = "remove labels.classes, or name the same classes in the signature"
        raise Fatal(f"labels.classes are {list(names)}, but the signature's are {list(signature_names)}", hint, USAGE)
    if len(names) > 2 and signature_names and names != signature_names:
        hint = "the columns of the score have the order of the signature's labels: write labels.classes in this order"
        raise Fatal(f"labels.classes are {list(names)}, but the signature's are {list(signature_names)}", hint, USAGE)
    return Target("binary" if len(names) == 2 else "classes", names)


def class_counts(rows: LabelledRows) -> dict[str, int]:
    """Return the number of rows of each class by its name; empty for a regression."""
    if rows.target.kind == "regression":
        return {}
    counts = np.bincount(rows.outcomes, minlength=len(rows.target.classes)).tolist()
    return dict(zip(rows.target.classes, counts, strict=True))


def outcome_range(rows: LabelledRows) -> dict[str, float]:
    """Return the mean, standard deviation, minimum and maximum of the outcomes of a regression; empty for classes."""
    if rows.target.kind != "regression" or not len(rows):
        return {}
    outcomes = rows.outcomes
    moments = {"mean": outcomes.mean(), "deviation": outcomes.std(), "minimum": outcomes.min(), "maximum": outcomes.max()}
    return {name: float(value) for name, value in moments.items()}


def split(joined: Joined, training: TrainingSettings) -> Split:
    """Split the labelled rows by time into the parts training, validation and hold-out.

    The hold-out ends at `mature_ms`, the validation part ends where the hold-out starts, and the rest is for training.

    Raises:
        Fatal: Exit code 3 if there are too few rows, or too few different outcomes in a part. The training part needs every
            class, and each other part at least two classes. For a regression, each part needs two different numbers.
    """
    rows = joined.rows
    times = joined.rows.places.time_ms
    hold_out = joined.mature_ms - training.snapshot.hold_out
    validation = hold_out - training.snapshot.validation
    parts = Split(
        rows.select(times <= validation),
        rows.select((times > validation) & (times <= hold_out)),
        rows.select(times > hold_out),
    )
    counts = ", ".join(f"{name} {len(part)}" for name, part in zip(PARTS, parts, strict=True))
    if len(rows) < training.snapshot.at_least:
        message = f"{len(rows)} labelled events are too few ({counts}); snapshot.at_least is {training.snapshot.at_least}"
        hint = "wait for more labels, or make snapshot.window longer"
        raise Fatal(f"{message}; events left out: {joined.left_out}; labels: {joined.labels}", hint, REFUSED)
    spans = ("", f" ({written(training.snapshot.validation)})", f" ({written(training.snapshot.hold_out)})")
    for name, span, part in zip(PARTS, spans, parts, strict=True):
        _check_outcomes(f"the part {name}{span}", part, len(joined.target.classes) if part is parts.training else 2, counts)
    return parts


def _check_outcomes(where: str, rows: LabelledRows, required: int, beside: str) -> None:
    """Check that the rows contain at least `required` classes, or two different numbers for a regression.

    For the error message, `where` describes the rows, and `beside` is a remark that the message appends in parentheses. Raises
    Fatal (exit code 3).
    """
    if rows.target.kind == "regression":
        if len(rows) and rows.outcomes.min() != rows.outcomes.max():
            return
        values = f": {rows.outcomes[0]:g}" if len(rows) else ""
        message = f"{where} has fewer than two different labels among {len(rows)} labelled events{values}"
    else:
        counts = class_counts(rows)
        missing = [name for name, count in counts.items() if not count]
        if len(counts) - len(missing) >= required:
            return
        message = f"{where} has no event of class {' or of class '.join(map(repr, missing))} among {len(rows)} labelled events"
    raise Fatal(
        f"{message} ({beside})",
        "check the producer of the labels and the setting labels.value, or make this part longer",
        REFUSED,
    )


class _Events:
    """Collects the usable events of a snapshot by id (`rows`), and counts the omitted events by reason (`left_out`)."""

    def __init__(self, settings: Settings, frozen: Frozen, training: TrainingSettings, decoder: Decoder, beside: bool) -> None:
        self.left_out = SkipCounts()
        self.rows = latest_by_id.RowsById()
        self.mature_ms = frozen.now_ms - training.labels.after
        self._begin_ms = frozen.now_ms - training.snapshot.window
        self._now_ms = frozen.now_ms
        self._places = list(frozen.spans("events"))
        self._topics = tuple(frozen.events)
        self._region = settings.region
        self._decoder = decoder
        self._values: list[bytes] = []
        self._beside = Beside([], []) if beside else None
        self._logged = training.snapshot.from_ == "features"
        self._tensors: list[dict[str, NDArray[Any]]] = []
        self._tried = 0
        self._undecodable = SkipCounts()

    def add(self, partition: Partition, columns: Columns) -> None:
        """Decode and add the usable events of a batch of one partition. Batches of a partition are added in order of offset."""
        usable = self._usable(columns)
        if not usable:
            return
        offsets, times, keys, values, headers = ([column[at] for at in usable] for column in columns.values())
        if self._logged:
            headers = [None] * len(values)  # a feature record has the id in its value
        decoded = self._decoder.decode(values, ListedMetadata(keys, times, headers))
        self._tried += len(values)
        for row, poison in sorted(decoded.rejected.items()):
            self._undecodable.add(poison.reason, 1, f"{RecordPosition(partition, offsets[row])}: {poison}")
        named = (
            event_id(
                HeaderValues.from_headers(headers[row]) if headers[row] else NO_HEADER_VALUES,
                id_,
                self._region,
                (*partition, offsets[row]),
            )
            for row, id_ in zip(decoded.rows, decoded.ids, strict=True)
        )
        places = np.array(offsets, np.int64)[decoded.rows]
        moments = np.array(times, np.int64)[decoded.rows]
        at = np.arange(len(self._values), len(self._values) + len(decoded.rows))
        self.rows.add(latest_by_id.hash_ids(named), self._places.index(partition), places, moments, at=at)
        self._values += [values[row] for row in decoded.rows]
        if self._beside:
            self._beside.add([keys[row] for row in decoded.rows], [headers[row] for row in decoded.rows])
        self._tensors.append(decoded.tensors)

    def check(self) -> None:
        """Add the counts of undecodable events to `left_out`.

        Raises Fatal (exit code 3) if more than half of the events are undecodable, or no event is left.
        """
        undecodable = self._undecodable.counts
        for reason, count in undecodable.items():
            self.left_out.add(reason, count, self._undecodable.first[reason])
        if 2 * undecodable.total() > self._tried:
            reason, count = undecodable.most_common(1)[0]
            message = f"{undecodable.total()} of {self._tried} events cannot be decoded, {count} of them {reason}"
            hint = "if their schema changed, shorten snapshot.window to start after the change, or set the matching signature"
            raise Fatal(f"{message}, the first at {self._undecodable.first[reason]}", hint, REFUSED)
        if not self._values:
            hint = "make snapshot.window longer, or labels.after shorter"
            raise Fatal(f"the snapshot has no event to train on; left out: {self.left_out}", hint, REFUSED)

    def chosen(self, newest: NewestRows, event_rows: NDArray[np.intp], outcomes: NDArray[Any], target: Target) -> LabelledRows:
        """Return the events at the indices `event_rows` of `newest`, with their outcomes, in the order of `Joined.rows`."""
        number, offset, time = (newest.columns[name][event_rows] for name in ("partition", "offset", "time"))
        topic = np.array([self._topics.index(name) for name, _ in self._places], np.int16)[number]
        partition = np.array([number for _, number in self._places], np.int32)[number]
        order = np.lexsort((offset, partition, topic, time))
        at = newest.columns["at"][event_rows][order]
        tensors = {name: np.concatenate([part[name] for part in self._tensors])[at] for name in self._tensors[0]}
        places = Places(self._topics, topic, partition, offset, time).select(order)
        beside = self._beside and self._beside.select(at)
        values = [self._values[row] for row in at.tolist()]
        return LabelledRows(tensors, outcomes[order], places, values, beside, self._logged, target)

    def _usable(self, columns: Columns) -> list[int]:
        """Return the indices of the usable events of a batch; count the other events by reason.

        An event is usable if its time is in `snapshot.window`, if it was at least `labels.after` old when the snapshot was
        frozen, and if its record is not a tombstone.
        """
        times = np.array(columns["time_ms"], np.int64)
        rules = {
            "before-window": times < self._begin_ms,
            "after-freeze": times > self._now_ms,
            "immature": times > self.mature_ms,
            str(Reason.TOMBSTONE): np.array([value is None for value in columns["value"]], np.bool_),
        }
        usable = np.ones(len(times), np.bool_)
        for reason, applies in rules.items():
            self.left_out.add(reason, int((usable & applies).sum()))
            usable &= ~applies
        return np.flatnonzero(usable).tolist()


def _truths(
    folder: Path, copied: Copied, settings: Settings, outcome_of: OutcomeReader, events: NewestRows
) -> tuple[NewestRows, SkipCounts]:
    """Return the newest label of each event id, and the counts of the labels that were not used, by reason.

    The column `truth` of the newest labels is the outcome: the index of a class or a number, or NaN if the label is withdrawn.
    """
    unused = SkipCounts()
    rows = latest_by_id.RowsById()
    ids = [np.empty((0, 2), np.uint64)]
    truths = [np.empty(0)]
    partitions = list(copied.frozen.spans("labels"))
    for partition, columns in batches(folder, copied, "labels"):
        labels = list(_read(columns, settings))
        named = latest_by_id.hash_ids(label.id if isinstance(label, Label) else "" for label in labels)
        outcomes = [
            _truth(label, is_held, outcome_of) for label, is_held in zip(labels, events.contains(named).tolist(), strict=True)
        ]
        usable = [at for at, truth in enumerate(outcomes) if isinstance(truth, float)]
        for at, truth in enumerate(outcomes):
            if isinstance(truth, Unusable):
                place = str(RecordPosition(partition, columns["offset"][at]))
                label = labels[at]
                unused.add(truth, 1, f"{place}: {label.value!r:.80}" if isinstance(label, Label) else place)
        unused.add(WITHOUT_EVENT, outcomes.count(None))
        places, times = (np.array(columns[name], np.int64)[usable] for name in ("offset", "time_ms"))
        ids.append(named[usable])
        truths.append(np.array([outcomes[at] for at in usable], np.float64))
        rows.add(ids[-1], partitions.index(partition), places, times, truth=truths[-1])
    last = rows.newest()
    unused.add(REPLACED, last.replaced)
    unused.add(CONFLICTING, _conflicting(np.concatenate(ids), np.concatenate(truths)))
    return last, unused


def _read(columns: Columns, settings: Settings) -> Iterator[Label | Unusable]:
    read = reader(settings.labels)
    for key, value, headers in zip(columns["key"], columns["value"], columns["headers"], strict=True):
        yield read(key, value, partial(_same, headers))


def _same(headers: Headers) -> Headers:
    return headers


def _outcome_reader(settings: Settings, signature: Signature, target: Target) -> OutcomeReader:
    """Return a function that converts the value of a label to an outcome."""
    if target.kind == "regression":
        return lambda value: Unusable.NO_NUMBER if isinstance(value, str) else value
    named = settings.labels.classes or decided(signature)
    return (Classes(target.classes) if named else BINARY).number_of


def _truth(label: Label | Unusable, is_held: bool, outcome_of: OutcomeReader) -> float | Unusable | None:
    """Return the outcome of a label, or NaN if the label's value is null (withdrawn).

    An unusable label is returned unchanged. `is_held` states whether an event has the id of the label; if it is false, the
    result is None.
    """
    if isinstance(label, Unusable):
        return label
    if not is_held:
        return None
    return np.nan if label.value is None else outcome_of(label.value)


def _conflicting(ids: NDArray[np.uint64], truths: NDArray[np.float64]) -> int:
    """Count the ids that have labels with different outcomes.

    `ids` (n, 2) and `truths` (n,) are the event ids and the outcomes of n labels. Labels with the outcome NaN are ignored.
    """
    ids = ids[np.isfinite(truths)]
    truths = truths[np.isfinite(truths)]
    order = np.lexsort((truths, ids[:, 1], ids[:, 0]))
    ids = ids[order]
    truths = truths[order]
    same = (ids[1:] == ids[:-1]).all(axis=1)
    number = np.cumsum(~same)
    return len(np.unique(number[same & (truths[1:] != truths[:-1])]))
