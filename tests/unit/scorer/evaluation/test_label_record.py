"""Parsing of label records, and the reasons why a record has no label."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorer.decoding.batch import Headers
from scorer.evaluation.label_record import MAX_BYTES, Label, Unusable, reader
from scorer.settings.labels import LabelSettings

IN_VALUE = LabelSettings(topic="labels", id="flight.id", value="outcome")
IN_KEY = LabelSettings(topic="labels", value="outcome")
IN_HEADER = LabelSettings(topic="labels", id="header:ce_id", value="outcome")


def read_label(settings: LabelSettings, value: bytes | None, key: bytes | None = None, headers: Headers = None) -> Any:
    return reader(settings)(key, value, lambda: headers)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"flight": {"id": "f1"}, "outcome": "late"}', Label("f1", "late")),
        (b'\0\0\0\0\x07{"flight": {"id": "f1"}, "outcome": "late"}', Label("f1", "late")),  # behind a schema's id
        (b'{"flight": {"id": 17}, "outcome": 1}', Label("17", 1.0)),
        (b'{"flight": {"id": "f1"}, "outcome": true}', Label("f1", 1.0)),
        (b'{"flight": {"id": "f1"}, "outcome": -2.5}', Label("f1", -2.5)),
        (b"{", Unusable.NOT_JSON),
        (b"\xff\xfe", Unusable.NOT_JSON),
        (b"[" * 100_000, Unusable.NOT_JSON),
        (b"[1, 2]", Unusable.NO_ID),
        (b'{"flight": "f1", "outcome": 1}', Unusable.NO_ID),
        (b'{"flight": {"id": 1.5}, "outcome": 1}', Unusable.NO_ID),
        (b'{"flight": {"id": true}, "outcome": 1}', Unusable.NO_ID),
        (b'{"flight": {"id": "f1"}}', Unusable.NO_VALUE),
        (b'{"flight": {"id": "f1"}, "outcome": null}', Unusable.NO_VALUE),
        (b'{"flight": {"id": "f1"}, "outcome": ["late"]}', Unusable.NO_VALUE),
        (b'{"flight": {"id": "f1"}, "outcome": NaN}', Unusable.NOT_FINITE),
        (b'{"flight": {"id": "f1"}, "outcome": -Infinity}', Unusable.NOT_FINITE),
        (b'{"flight": {"id": "f1"}, "outcome": 1e999}', Unusable.NOT_FINITE),
        (b'{"flight": {"id": "f1"}, "outcome": 1' + b"0" * 400 + b"}", Unusable.NOT_FINITE),
        (b'{"flight": {"id": "f1"}, "outcome": "' + b"x" * 201 + b'"}', Unusable.UNKNOWN_CLASS),
        (b'"' + b"x" * MAX_BYTES + b'"', Unusable.OVERSIZE),
        (None, Unusable.TOMBSTONE_WITHOUT_ID),
    ],
)
def test_a_label_in_its_value(value: bytes | None, expected: Label | Unusable) -> None:
    assert read_label(IN_VALUE, value) == expected


def test_an_id_in_the_key_or_in_a_header() -> None:
    value = b'{"outcome": "late"}'
    assert read_label(IN_KEY, value, b"f1") == Label("f1", "late")
    assert read_label(IN_KEY, None, b"f1") == Label("f1", None)
    assert read_label(IN_KEY, value) is Unusable.NO_ID
    assert read_label(IN_HEADER, value, headers=[("ce_id", b"f0"), ("ce_id", b"f1")]) == Label("f1", "late")
    assert read_label(IN_HEADER, value, b"f1") is Unusable.NO_ID


@given(st.none() | st.binary(max_size=50), st.none() | st.binary(max_size=50))
def test_no_record_is_fatal(key: bytes | None, value: bytes | None) -> None:
    for settings in (IN_VALUE, IN_KEY, IN_HEADER):
        assert isinstance(read_label(settings, value, key), Label | Unusable)
