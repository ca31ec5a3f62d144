"""Any bytes, in every format: each event is decoded or rejected, nothing is raised, and an id can be written down."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scorer.events.decoder import Decoder
from scorer.events.float32 import Float32Decoder
from scorer.events.json.arrays import JsonArrayDecoder, JsonEnvelopeDecoder
from scorer.events.json.objects import JsonDecoder
from scorer.events.schemas.decoder import SchemaDecoder
from tests.campaigns.fuzz.records import PIECES
from tests.unit.scorer.events.formats import ARRAY, NUMBERS, WIDTH
from tests.unit.scorer.events.schema_events import PROTO, avro_encoder, configured, proto_encoder
from tests.unit.scorer.events.test_schema_formats import AVRO

EVENT = {"id": "e", "a": 1.0, "b": 2.0, "c": 3.0, "vector": [0.5] * WIDTH}
FLAT = json.dumps(EVENT["vector"]).encode()
ENVELOPE = json.dumps({"id": "e", "features": EVENT["vector"]}).encode()
Make = Callable[[Path], tuple[Decoder, bytes]]
DECODERS: dict[str, Make] = {
    "json": lambda _: (JsonDecoder(NUMBERS, "id", 100_000), json.dumps(EVENT).encode()),
    "json-array": lambda _: (JsonArrayDecoder(ARRAY, 100_000), FLAT),
    "json-envelope": lambda _: (JsonEnvelopeDecoder(ARRAY, "id", 100_000), ENVELOPE),
    "float32": lambda _: (Float32Decoder(ARRAY, 100_000), bytes(4 * WIDTH)),
    "avro": lambda folder: (
        SchemaDecoder(NUMBERS, configured(folder, "avro", json.dumps(AVRO))),
        avro_encoder(AVRO)(EVENT),
    ),
    "protobuf": lambda folder: (
        SchemaDecoder(NUMBERS, configured(folder, "protobuf", PROTO, message="Event")),
        proto_encoder(PROTO)(EVENT),
    ),
}
"""A decoder of each format, and a good event."""


@pytest.fixture(scope="module", params=list(DECODERS))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Decoder, bytes]:
    return DECODERS[request.param](tmp_path_factory.mktemp("schemas"))


Cut = tuple[float, bytes, int]
cuts = st.lists(st.tuples(st.floats(0, 1), st.sampled_from(PIECES) | st.binary(max_size=4), st.integers(0, 9)), max_size=2)


def damaged(good: bytes, places: Sequence[Cut]) -> bytes:
    """The event with pieces put in, each over some bytes of it."""
    for share, piece, over in places:
        at = int(share * len(good))
        good = good[:at] + piece + good[at + over :]
    return good


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(cuts, max_size=4), noise=st.lists(st.none() | st.binary(max_size=40), max_size=2))
def test_any_bytes_are_decoded_or_rejected(
    made: tuple[Decoder, bytes], changes: list[list[Cut]], noise: list[bytes | None]
) -> None:
    decoder, good = made
    values = [*(damaged(good, places) for places in changes), *noise]
    decoded = decoder.decode(values)
    assert sorted([*decoded.rows, *decoded.rejected]) == list(range(len(values)))
    for id_ in decoded.ids:
        str(id_).encode()
    for tensor in decoded.tensors.values():
        assert len(tensor) == len(decoded.rows)
    for poison in decoded.rejected.values():
        assert poison.reason
