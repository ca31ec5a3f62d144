"""Slices of the hold-out rows: the rows with the same value of a field form a slice.

A metric over all rows could improve although it gets worse in one slice.
"""

import numpy as np
import orjson
from numpy.typing import NDArray

from model_registry.package import json_path
from model_registry.package.signature import Signature
from publisher.errors import USAGE, Fatal
from scorer.decoding import decoder_factory
from scorer.features.log import create_reader
from scorer.features.read import ReadFeatures
from scorer.settings import Settings
from scorer.settings.input_formats import NAMED_FIELD_FORMATS
from training.snapshot.rows import LabelledRows

MIN_ROWS = 1_000  # the minimum number of rows of a slice: results on fewer rows are too uncertain
MAX_SLICES = 200  # the maximum number of slices of all fields together: more slices are useless
Texts = NDArray[np.str_]


def by_field(rows: LabelledRows, settings: Settings, signature: Signature, fields: tuple[str, ...]) -> dict[str, Texts]:
    """Return for each field the field's values in all rows as text, (B,).

    `fields` are paths in the event if the input format has named fields, else fields of the signature. For rows of the feature
    log, they are names of logged fields.

    Raises:
        Fatal: Exit code 2 if no event has a field, or the fields have too many values.
    """
    if not fields:
        return {}
    if rows.logged:
        columns = _of_feature_records(rows, create_reader(settings), fields)
    elif settings.input.format in NAMED_FIELD_FORMATS:
        reader = decoder_factory.create_path_reader(settings, [json_path.parse_object_path(field) for field in fields])
        field_values = [reader.values(value) for value in rows.values]
        columns = {field: np.array([_text(row[at]) for row in field_values], np.str_) for at, field in enumerate(fields)}
    else:
        columns = {field: _of_tensor(rows, signature, field, settings.input.format) for field in fields}
    for field, column in columns.items():
        if not (column != "null").any():
            kind = "logged field" if rows.logged else "field of the events"
            raise Fatal(f"gate.slices: no held-out event has a field {field!r}", f"name a {kind} in gate.slices", USAGE)
    counts = {field: len(large(column)) for field, column in columns.items()}
    if sum(counts.values()) > MAX_SLICES:
        counted = ", ".join(f"{field!r} has {count}" for field, count in counts.items())
        limit = f"all fields together may have {MAX_SLICES}"
        message = f"gate.slices: too many values with {MIN_ROWS:,} rows or more: {counted}; {limit}"
        raise Fatal(message, "name fewer fields, or fields with fewer values, in gate.slices", USAGE)
    return columns


def large(column: Texts) -> list[str]:
    """Return the values that occur in at least `MIN_ROWS` rows, in sorted order."""
    values, counts = np.unique(column, return_counts=True)
    return [str(value) for value in values[counts >= MIN_ROWS]]


def _of_tensor(rows: LabelledRows, signature: Signature, field: str, format_: str) -> Texts:
    for tensor in signature.fed:
        names = [tensor_field.name for tensor_field in tensor.fields]
        if field in names and tensor.fields[0].array is None:
            return np.array([_text(value) for value in rows.tensors[tensor.tensor][:, names.index(field)].tolist()], np.str_)
    message = (
        f"gate.slices: events in {format_} have no field names, and the signature has no field {field!r} that is one value"
    )
    raise Fatal(message, "name a field of the signature in gate.slices", USAGE)


def _of_feature_records(rows: LabelledRows, read: ReadFeatures, fields: tuple[str, ...]) -> dict[str, Texts]:
    texts: dict[str, list[str]] = {field: [] for field in fields}
    for value in rows.values:
        inputs = read(value).inputs
        for field, column in texts.items():
            column.append(_text(inputs.get(field)))
    return {field: np.array(column, np.str_) for field, column in texts.items()}


def _text(value: object) -> str:
    """Return a string unchanged, and other values as JSON."""
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
