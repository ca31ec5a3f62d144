"""JSON decodes to the same bits, ids, reasons and messages with the native scanner and without it."""

import json
import math
import random
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_registry.package.signature import Signature
from model_registry.package.signature_schema import parse_signature
from scorer.decoding.json import native_rows
from scorer.decoding.json.arrays import JsonArrayDecoder, JsonEnvelopeDecoder
from scorer.decoding.json.decoder import JsonDecoder
from scorer.decoding.types import Decoded
from scorer.native.scanner import UNCERTAIN
from tests.unit.scorer.decoding.formats import damaged, scanner_of

LARGEST = 5_000
LONG = [f"a_name_longer_than_two_words_{k}" for k in range(9)]
NAMES = ["a", "b", "id", "f1", "f10", "exactly", "eight___", "nine_____", *LONG]
AWKWARD = ["", "é", 'a"b', "back\\slash", "tab\t", "del\x7f"]
WORDS = [
    "null",
    "true",
    "false",
    "[]",
    "[1]",
    "{}",
    '{"a":1}',
    "NaN",
    "Infinity",
    "-Infinity",
    "nul",
    "tru",
    '"1"',
    "",
    "-",
    ".",
]
pytestmark = pytest.mark.debian("cc")


def near_midpoints(draw: random.Random) -> float:
    """Draw a float64 at the middle between two float32, or a few units beside it."""
    (value,) = struct.unpack("<f", struct.pack("<I", draw.randrange(0x33000000, 0x4B000000)))
    middle = (float(value) + float(np.nextafter(np.float32(value), np.float32(np.inf)))) / 2
    for _ in range(draw.choice([0, 0, 1, 2, 7, 8, 9, 10])):
        middle = math.nextafter(middle, draw.choice([0.0, math.inf]))
    return middle


def number_text(draw: random.Random) -> str:
    """Draw a number by JSON's grammar, or a slightly wrong one."""
    value = draw.choice([draw.gauss(0, 1), draw.uniform(-1e6, 1e6), draw.expovariate(1) * 10 ** draw.randint(-45, 45)])
    match draw.randrange(9):
        case 0:
            return repr(value)
        case 1:
            return f"{value:.{draw.randint(0, 25)}g}"
        case 2:
            return f"{value:.{draw.randint(0, 22)}f}"
        case 3:
            return str(draw.randint(-(10 ** draw.randint(0, 22)), 10 ** draw.randint(0, 22)))
        case 4:
            return f"{near_midpoints(draw):.{draw.randint(8, 25)}g}"
        case 5:
            return f"{Decimal(near_midpoints(draw)):f}"[: draw.randint(2, 40)]
        case 6:
            return draw.choice(
                ["0", "-0", "0.0", "-0.0", "-0e0", "0e-5", "1e39", "-1e39", "1E5", "1e+05", "1e0005", "1e", "01"]
            )
        case 7:
            return draw.choice(["", "-"]) + "".join(draw.choices("0123456789.eE+-", k=draw.randint(1, 24)))
        case _:
            return f"{draw.randrange(1000)}.{draw.randrange(10 ** draw.randint(1, 18))}"


def signature_of(fields: Sequence[dict[str, Any]], cut: int) -> Signature:
    """Return the fields as one tensor, or as two tensors that share one field if `cut` is inside the list."""
    parts = [fields[: cut + 1], fields[cut:]] if 0 < cut < len(fields) else [fields]
    inputs = [{"tensor": f"t{at}", "dtype": "float32", "fields": list(part)} for at, part in enumerate(parts)]
    return parse_signature(json.dumps({"inputs": inputs, "output": {"tensor": "y"}}))


numbers = st.integers(0, 2**63).map(lambda seed: number_text(random.Random(seed)))
usual = st.integers(0, 2**63).map(lambda seed: repr(random.Random(seed).gauss(0, 1)))
odd = st.one_of(numbers, numbers, numbers, st.sampled_from(WORDS), st.just("null"))
texts = st.text(max_size=6).map(json.dumps) | st.text('aé\\"\n\x01\x7f/0', max_size=12).map(lambda text: f'"{text}"')
ids = st.one_of(texts, st.text("abc-019", max_size=30).map(json.dumps), numbers, st.sampled_from(WORDS))
space = st.sampled_from(["", "", "", " ", "\n\t\r "])


@st.composite
def signatures(draw: st.DrawFn) -> tuple[Signature, str | None]:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=12, unique=True))
    fields = [{"name": name, **draw(st.sampled_from([{}, {}, {"default": "nan"}, {"default": -1.1}]))} for name in names]
    return signature_of(fields, draw(st.integers(0, 5))), draw(st.sampled_from([None, "id", "id", "key", "a"]))


@st.composite
def events(draw: st.DrawFn, names: Sequence[str], id_field: str | None) -> bytes:
    """Draw a text that is nearly an event of these fields, usually with all fields and in their order."""
    members = [(name, draw(usual)) for name in names]
    for at in draw(st.sampled_from([[], [0], [-1], range(len(members))])):
        members[at] = names[at], draw(odd)
    if id_field and id_field not in names:
        members.insert(draw(st.sampled_from([0, 0, len(members)])), (id_field, draw(ids)))
    if draw(st.integers(0, 3)) == 0:
        members = draw(st.permutations(members))[: draw(st.integers(len(members) - 1, len(members)))]
    if draw(st.integers(0, 3)) == 0:
        more = draw(st.sampled_from([*names, "id", "unknown", *AWKWARD])), draw(st.one_of(usual, odd, texts))
        members.insert(draw(st.integers(0, len(members))), more)
    gap = draw(space)
    text = f",{gap}".join(f'"{name}"{gap}:{gap}{value}' for name, value in members)
    value = f"{draw(space)}{{{gap}{text}{draw(space)}}}{draw(space)}".encode("utf-8", "surrogatepass")
    return draw(damaged(value)) if draw(st.integers(0, 5)) == 0 else value


def plainly(names: Sequence[str], id_field: str | None, seed: int) -> bytes:
    """Return an event for which the scanner is certain."""
    draw = random.Random(seed)
    return json.dumps({**({id_field: f"e{seed}"} if id_field else {}), **{name: draw.gauss(0, 1) for name in names}}).encode()


def assert_identical(decoded: Decoded, expected: Decoded) -> None:
    """Assert that two decoded batches have the same bits and types."""
    assert decoded.rows == expected.rows
    assert list(decoded.ids) == list(expected.ids)
    assert list(map(type, decoded.ids)) == list(map(type, expected.ids))
    assert list(decoded.tensors) == list(expected.tensors)
    for name, tensor in decoded.tensors.items():
        expected_tensor = expected.tensors[name]
        assert (tensor.dtype, tensor.shape, tensor.flags.c_contiguous) == (expected_tensor.dtype, expected_tensor.shape, True)
        assert tensor.flags.writeable == expected_tensor.flags.writeable
        np.testing.assert_array_equal(tensor.view(np.uint32), expected_tensor.view(np.uint32))
    assert [(row, p.reason, str(p)) for row, p in decoded.rejected.items()] == [
        (row, p.reason, str(p)) for row, p in expected.rejected.items()
    ]


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_any_batch_is_decoded_as_without_the_scanner(data: st.DataObject) -> None:
    """Decode two batches in turn, since the scanner remembers the order of keys. Most events are plain, so that it is used."""
    signature, id_field = data.draw(signatures())
    names = [field.name for field in signature.fields]
    decoders = JsonDecoder(signature, id_field, LARGEST), JsonDecoder(signature, id_field, LARGEST, min_events=None)
    for _ in range(2):
        drawn = data.draw(st.lists(events(names, id_field), max_size=8))
        plain = [plainly(names, id_field, seed) for seed in range(max(native_rows.MIN_EVENTS, len(drawn) + 1))]
        batch = data.draw(st.permutations([*drawn, *plain]))
        assert_identical(*(decoder.decode(batch) for decoder in decoders))


ARRAY = {"array": True, "length": 3}
lists = st.one_of(
    st.lists(usual, min_size=3, max_size=3), st.lists(st.one_of(usual, odd, texts, st.just("[1]")), max_size=4)
).map(lambda elements: f"[{','.join(elements)}]")
array_kinds = st.sampled_from([{}, ARRAY, ARRAY, {**ARRAY, "default": 0.5}, {"array": True}])


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data(), kinds=st.lists(array_kinds, min_size=1, max_size=4))
def test_any_batch_with_arrays_is_decoded_as_without_the_scanner(data: st.DataObject, kinds: list[dict[str, Any]]) -> None:
    names = NAMES[-len(kinds) :]
    shapes = [{"shape": [3, 1]} if kind == {"array": True} else {} for kind in kinds]
    inputs = [
        {"tensor": name, "dtype": "float32", **shape, "fields": [{"name": name, **kind}]}
        for name, kind, shape in zip(names, kinds, shapes, strict=True)
    ]
    signature = parse_signature(json.dumps({"inputs": inputs, "output": {"tensor": "y"}}))
    decoders = JsonDecoder(signature, "id", LARGEST), JsonDecoder(signature, "id", LARGEST, min_events=None)
    named = list(zip(names, kinds, strict=True))
    plain = [json.dumps({name: [0.5, 1, -2.25] if kind else 7.5 for name, kind in named}).encode()] * native_rows.MIN_EVENTS
    for _ in range(2):
        values = [
            [(name, data.draw(st.one_of(lists, lists, odd) if kind else odd)) for name, kind in named]
            for _ in range(data.draw(st.integers(0, 6)))
        ]
        drawn = list(map(json_object, values))
        drawn = [data.draw(damaged(text)) if data.draw(st.integers(0, 5)) == 0 else text for text in drawn]
        batch = data.draw(st.permutations([*drawn, *plain]))
        assert_identical(*(decoder.decode(batch) for decoder in decoders))


def json_object(members: Sequence[tuple[str, str]]) -> bytes:
    return ("{" + ",".join(f'"{name}": {value}' for name, value in members) + "}").encode("utf-8", "surrogatepass")


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data(), one_field=st.booleans(), envelope=st.booleans())
def test_any_batch_of_arrays_is_decoded_as_without_the_scanner(data: st.DataObject, one_field: bool, envelope: bool) -> None:
    """Decode bare arrays and envelopes, with the elements of one field or of three fields."""
    fields: list[dict[str, Any]] = (
        [{"name": "v", **ARRAY}] if one_field else [{"name": "a"}, {"name": "b", "default": "nan"}, {"name": "c", "default": 2}]
    )
    signature = signature_of(fields, 0)
    decoders = [
        JsonEnvelopeDecoder(signature, "id", LARGEST) if envelope else JsonArrayDecoder(signature, LARGEST) for _ in "ab"
    ]
    decoders[1].scanned = None
    plain, drawn = (
        [b"[0.5, 1,-2.25]"] * native_rows.MIN_EVENTS,
        [e.encode("utf-8", "surrogatepass") for e in data.draw(st.lists(lists, max_size=6))],
    )
    if envelope:
        plain = [b'{"id":"e","features":%b}' % text for text in plain]
        drawn = [json_object([("id", data.draw(ids)), ("features", text.decode("utf-8", "surrogatepass"))]) for text in drawn]
    drawn = [data.draw(damaged(text)) if data.draw(st.integers(0, 5)) == 0 else text for text in drawn]
    for _ in range(2):
        batch = data.draw(st.permutations([*drawn, *plain]))
        assert_identical(*(decoder.decode(batch) for decoder in decoders))


@pytest.mark.parametrize("bad", [None, b"", b"{", bytes(LARGEST + 1), b"\xff", b'{"a":1}', b'{"id":"x","a":1,"b":1e39}'])
def test_a_bad_event_among_good_ones_is_rejected_as_without_the_scanner(bad: bytes | None) -> None:
    signature = signature_of([{"name": "a"}, {"name": "b"}], 0)
    batch = [*(plainly("ab", "id", seed) for seed in range(20)), bad, plainly("ab", "id", 20)]
    native_, other = (JsonDecoder(signature, "id", LARGEST, min_events=min_events).decode(batch) for min_events in (1, None))
    assert_identical(native_, other)
    assert list(native_.rejected) == [20]


def test_every_number_that_is_certain_has_the_same_bits() -> None:
    draw = random.Random(1)
    scanner, certain = scanner_of(["a"]), 0
    decode = JsonDecoder(signature_of([{"name": "a"}], 0), None, LARGEST, min_events=None).decode
    for _ in range(15):
        batch = [f'{{"a":{number_text(draw)}}}'.encode() for _ in range(4_000)]
        scanned = scanner.scan(batch)
        rows = [row for row, kind in enumerate(scanned.kinds) if kind != UNCERTAIN]
        expected = decode([batch[row] for row in rows])
        assert expected.rejected == {}
        np.testing.assert_array_equal(scanned.rows[rows].view(np.uint32), expected.tensors["t0"].view(np.uint32))
        certain += len(rows)
    assert certain > 20_000


@pytest.mark.parametrize("name", [name for name in AWKWARD if name])
def test_names_with_two_spellings_in_json_are_not_scanned(name: str) -> None:
    assert native_rows.NativeRows.of_objects(signature_of([{"name": name}], 0), "id") is None
    assert native_rows.NativeRows.of_objects(signature_of([{"name": "a"}], 0), name) is None


def test_only_float32_of_one_length_is_scanned() -> None:
    scalar, array = {"name": "a"}, {"name": "a", "array": True, "length": 3}
    varying = {"name": "a", "array": True, "max_length": 3}
    for dtype, field, shape in (("float64", scalar, {}), ("float64", array, {}), ("float32", varying, {"shape": [-1]})):
        inputs = [{"tensor": "x", "dtype": dtype, **shape, "fields": [field]}]
        signature = parse_signature(json.dumps({"inputs": inputs, "output": {"tensor": "y"}}))
        assert native_rows.NativeRows.of_objects(signature, "id") is None
        assert native_rows.NativeRows.of_arrays(signature) is None
    assert native_rows.NativeRows.of_objects(signature_of([{"name": "id"}], 0), "id") is None
    assert native_rows.NativeRows.of_envelopes(signature_of([scalar], 0), "features", "features") is None
    assert native_rows.NativeRows.of_objects(signature_of([array], 0), "id") is not None


def test_the_scanner_pauses_after_a_mostly_uncertain_batch_and_then_resumes() -> None:
    signature = signature_of([{"name": "a"}], 0)
    objects = native_rows.NativeRows.of_objects(signature, "id")
    assert objects is not None
    plain_decode = JsonDecoder(signature, "id", LARGEST, min_events=None).decode
    strange, plain = [b'{"id":"\xc3\xa9","a":1}'] * 20, [plainly("a", "id", seed) for seed in range(20)]
    decode_rows: Callable[[Sequence[int]], Decoded] = lambda rows: plain_decode([plain[row] for row in rows])  # noqa: E731
    assert objects.decoded(strange, decode_rows) is None
    assert [objects.decoded(plain, decode_rows) for _ in range(native_rows.REST)] == [None] * native_rows.REST
    decoded = objects.decoded(plain, decode_rows)
    assert decoded is not None
    assert_identical(decoded, plain_decode(plain))
