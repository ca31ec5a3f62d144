"""The events that the native scanner decodes, and the events that it leaves to Python."""

import json
import random
from functools import partial

import numpy as np
import pytest

from scorer.native.byte_columns import PADDING, ByteColumn
from scorer.native.scanner import TEXT_ID, UNCERTAIN, NumberField
from tests.unit.scorer.decoding.formats import scanner_for, scanner_of

pytestmark = pytest.mark.debian("cc")

CERTAIN = {
    '{"a":1.5,"b":-2e1,"id":"x"}': (1.5, -20.0, "x"),
    ' {\n"id" : 7 ,"b":null,\t"a":0}\r\n ': (0.0, 9.0, 7),
    '{"a":-0.0}': (-0.0, 9.0, None),
    '{"other":"","a":1,"more":true,"and":null,"so":false,"on":1e3,"id":""}': (1.0, 9.0, ""),
    '{"a":0.000012345678901234567}': (1.2345679e-05, 9.0, None),
    '{"a":12345678901234567,"id":-999999999999999999}': (1.2345678e16, 9.0, -999999999999999999),
}
NUMBERS = (
    "-0",
    "01",
    "-01",
    "+1",
    "1.",
    ".5",
    "-",
    "1e",
    "1e+",
    "1e-23",
    "1e23",
    "1e0001",
    "0x1",
    "NaN",
    "Infinity",
    '"1"',
    "true",
    "[1]",
    "{}",
    "1234567890123456789",
    "1 2",
    "1e400",
    "nul",
    "16777217.0000000001",
)
IDS = ("1.0", "1e2", "-0", "01", "true", "[]", '"\\u0041"', '"\\""', '"\n"', '"\x7f"', '"é"')
OTHER_VALUES = ("[]", "{}", "nan", "01", "1.", "-", '"\t"', '"é"', '"', "1e400", "tru")
UNCERTAIN_EVENTS = [
    "",
    " ",
    "{",
    "{}",
    "null",
    "[1]",
    '{"a"',
    '{"a":',
    '{"a":1',
    '{"a":1,',
    '{"a":1,}',
    '{"a":1}}',
    '{"a":1}{',
    '{"a":1} x',
    '{"a" 1}',
    '{"b":1}',
    '{"a":null}',
    '{"a":1,"a":1}',
    '{"a":1,"b":2,"b":2}',
    '{"a":1,"id":"x","id":"x"}',
    '{"a":1;"b":2}',
    "{'a':1}",
    '{"a":1,"\\u0062":1}',
    '{"a":1,"é":1}',
    '{"a":1,"o\nther":1}',
    '\ufeff{"a":1}',
    '{"a":1,"b',
    '{"a":1,"b":2\0}',
    *(f'{{"a":{value}}}' for value in NUMBERS),
    *(f'{{"a":1,"id":{value}}}' for value in IDS),
    *(f'{{"a":1,"other":{value}}}' for value in OTHER_VALUES),
]


@pytest.mark.parametrize("event", CERTAIN)
def test_certain_events(event: str) -> None:
    """Each event is scanned alone, and between neighbours that a scanner could read by mistake."""
    scanner = scanner_of("ab", [None, 9.0])
    for before, after in ((b"", b""), (b'{"a":1,"b":', b'2,"id":"y"}'), (b'{"a":"', b'"}'), (b" ", b" ")):
        scanned = scanner.scan([before, event.encode(), after])
        assert scanned.kinds[1] != UNCERTAIN
        *row, id_ = CERTAIN[event]
        np.testing.assert_array_equal(scanned.rows[1].view(np.uint32), np.array(row, np.float32).view(np.uint32))
        assert (type(scanned.ids[1]), scanned.ids[1]) == (type(id_), id_)


@pytest.mark.parametrize("event", UNCERTAIN_EVENTS)
def test_uncertain_events(event: str) -> None:
    scanner = scanner_of("ab", [None, 9.0])
    for after in (b"", b'{"a":1}', b"}", b' "b":2}', b":1}", b'"id":"x"}', b"1}", b'"}'):
        assert scanner.scan([event.encode(), after]).kinds[0] == UNCERTAIN


VECTOR = [NumberField("a"), NumberField("v", array=3), NumberField("w", 9.0, array=2)]
ARRAYS = {
    '{"a":1,"v":[1.5,-2,3e1],"w":[4,5]}': [1.0, 1.5, -2.0, 30.0, 4.0, 5.0],
    '{"v" : [ 1 ,\n2\t, 3 ] , "id":"x", "a":0}': [0.0, 1.0, 2.0, 3.0, 9.0, 9.0],
    '{"w":null,"v":[-0.0,0.1234567,12345678.125],"a":1}': [1.0, -0.0, 0.1234567, 12345678.0, 9.0, 9.0],
}
NO_ARRAYS = [
    "[]",
    "[1,2]",
    "[1,2,3,4]",
    "[1,2,3",
    "[1,2,3,]",
    "[,1,2,3]",
    "[1 2 3]",
    "[1,2,[3]]",
    "[[1,2,3]]",
    "[1,null,3]",
    "1",
    "null",
    '"1,2,3"',
    "[1,2,3}",
    "[1,2,-]",
    "[1,2,3.]",
    "[1,2,03]",
    "[1,2,-0]",
    '["1",2,3]',
    "[true,2,3]",
]


@pytest.mark.parametrize("event", ARRAYS)
def test_arrays_of_the_right_length_are_certain(event: str) -> None:
    scanner = scanner_for(VECTOR, "id")
    for before, after in ((b"", b""), (b'{"a":1,"v":[1,', b'2,3],"w":[4,5]}'), (b"[1,", b"1]}")):
        scanned = scanner.scan([before, event.encode(), after])
        assert scanned.kinds[1] != UNCERTAIN
        np.testing.assert_array_equal(scanned.rows[1].view(np.uint32), np.array(ARRAYS[event], np.float32).view(np.uint32))


@pytest.mark.parametrize("value", NO_ARRAYS)
def test_other_arrays_are_uncertain(value: str) -> None:
    objects, bare = scanner_for(VECTOR, "id"), scanner_for([NumberField("", array=3)], bare=True)
    for after in (b"", b"]", b",3]", b"3]}", b'],"a":1}', b"[1,2,3]"):
        assert objects.scan([f'{{"a":1,"v":{value}}}'.encode(), after]).kinds[0] == UNCERTAIN
        assert bare.scan([value.encode(), after]).kinds[0] == UNCERTAIN


def test_an_event_may_be_an_array() -> None:
    bare = scanner_for([NumberField("", array=3)], bare=True)
    scanned = bare.scan([b"[1,2,3]", b"[1,2,3]]", b"[1,2,3] 4", b" [ 4, 5.5,\n-6e0 ] \n", b"", b'{"a":[1,2,3]}'])
    certain = [row for row, kind in enumerate(scanned.kinds) if kind != UNCERTAIN]
    assert certain == [0, 3]
    assert scanned.rows[certain].tolist() == [[1, 2, 3], [4, 5.5, -6]]
    assert list(scanned.ids) == [None] * 6


def test_plain_events_are_certain() -> None:
    """Events as usual producers write them: 17 digits, integers, exponents, other orders of keys, white space, more fields."""
    draw = random.Random(1)
    names = [f"feature_of_a_customer_{k}" for k in range(40)]
    scanner = scanner_of(names, [0.5] * 40)
    dumps_compactly = partial(json.dumps, separators=(",", ":"))
    for dumps in (json.dumps, dumps_compactly, partial(json.dumps, indent=2)):
        batch = []
        for seed in range(100):
            numbers_ = [draw.random(), draw.gauss(0, 1e6), draw.random() * 1e-4, draw.randrange(10**15), None, -0.0, 1e-7, 2e7]
            event = {"id": f"é{seed}" if seed == 7 else f"e{seed}", "at": "2026", "more": True}
            event |= {name: draw.choice(numbers_) for name in draw.sample(names, k=len(names))}
            batch.append(dumps(event).encode())
        kinds = scanner.scan(batch).kinds
        assert kinds.count(TEXT_ID) >= 95
        assert kinds[7] == UNCERTAIN


def test_events_of_a_column_may_lie_in_any_order_and_with_gaps() -> None:
    column = ByteColumn.split(b'{"a":1,"b":2} {"a":3,"b":4} {"a":5,"b":6} ' + PADDING, 0, np.array([13, 27, 41]))
    scanned = scanner_of("ab").scan(column.part(np.array([2, 0])))
    assert scanned.rows.tolist() == [[5, 6], [1, 2]]
