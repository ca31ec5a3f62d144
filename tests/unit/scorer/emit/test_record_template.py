"""Records made from lines: keys, headers, values and times from the fields of an event."""

import base64

import pytest

from publisher.errors import Fatal
from scorer.emit.event_lines import EventLine
from scorer.emit.record_template import MAX_TIME, InputRecord, RecordTemplate, fill_in, key_of, time_of, value_of


def test_the_key_is_a_template_over_the_event() -> None:
    assert key_of("{carrier}-{flight}", {"carrier": "UA", "flight": 15}, 1) == b"UA-15"
    assert key_of(None, 7, 1) is None
    nested = {"after": {"id": 7, "is new": True}, "items": [{"sku": "s-1"}]}
    assert key_of("{after.id}/{items[0].sku}/{after[id]:03d}", nested, 1) == b"7/s-1/007"
    assert key_of('{after."is new"}', nested, 1) == b"true"
    for template, message in (
        ("{after.no}", r"no field 'after\.no' for the key"),
        ("{items[1].sku}", r"no field 'items\[1\]\.sku' for the key"),
        ("{items.sku}", "items is an array, not an object with 'sku'"),
    ):
        with pytest.raises(Fatal, match=message):
            key_of(template, nested, 1)


@pytest.mark.parametrize("event", [{"carrier": "UA"}, [1], 7, None])
def test_an_event_without_the_keys_fields_is_named(event: object) -> None:
    with pytest.raises(Fatal, match="line 7"):
        key_of("{carrier}-{flight}", event, 7)


def test_emit_fills_headers_and_takes_a_field_for_the_value() -> None:
    event = {"store": 3, "image": base64.b64encode(b"\0\1").decode(), "text": "é", "n": [1]}
    assert fill_in("s-{store}", "header", event, 1) == b"s-3"
    assert value_of("image", True, event, 1) == b"\0\1"
    assert value_of("text", False, event, 1) == "é".encode()
    assert value_of("n", False, event, 1) == b"[1]"
    for field, base, message in (
        ("imagine", True, "line 7: the event has no field 'imagine' for its value"),
        ("text", True, "line 7: field 'text': 'é' is not base64 (standard alphabet, padded)"),
    ):
        with pytest.raises(Fatal) as raised:
            value_of(field, base, event, 7)
        assert str(raised.value) == message
    with pytest.raises(Fatal, match=r"line 7: the event has no field 'shop' for the header 'x\{shop\}'"):
        fill_in("x{shop}", "header", event, 7)


@pytest.mark.parametrize(
    ("event", "time"),
    [
        ({"at": 0}, 0),
        ({"at": "1970-01-01"}, 0),
        ({"at": "1970-01-01T00:00:01.5"}, 1_500),
        ({"at": "1970-01-01T01:00:00+01:00"}, 0),
        ({"at": "2025-03-01T12:00:00Z"}, 1_740_830_400_000),
        ({"at": -1}, None),
        ({"at": "1969-12-31T23:59:59Z"}, None),
        ({"at": MAX_TIME}, None),
        ({"at": True}, None),
        ({"at": None}, None),
        ({"at": "soon"}, None),
        ({"at": 1.5}, None),
        ({"at": []}, None),
        ({}, None),
        ([], None),
    ],
)
def test_time_of_an_event_is_read_or_rejected(event: object, time: int | None) -> None:
    if time is not None:
        assert time_of("at", event, 1) == time
        return
    with pytest.raises(Fatal, match=r"line 3: .* 'at'") as raised:
        time_of("at", event, 3)
    assert (raised.value.exit_code, raised.value.hint) == (2, "check --time and the event: ISO 8601, or Unix milliseconds")


def test_fields_are_parsed_only_if_the_template_needs_them() -> None:
    plain = RecordTemplate(headers=[("source", "nightly")])
    assert not plain.reads_fields
    assert plain.record(EventLine(1, b"\xff", None)) == InputRecord(None, b"\xff", [("source", b"nightly")], None)
    for template in (
        RecordTemplate(key="k"),
        RecordTemplate(value=("a", False)),
        RecordTemplate(time_field="at"),
        RecordTemplate(headers=[("a", "{b}")]),
    ):
        assert template.reads_fields
