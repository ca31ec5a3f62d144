"""The prefix that serialisers for JSON Schema write before the JSON: a zero byte and the id of the schema.

Confluent's ids have 4 bytes, and the lowest id is 1. The ids of Apicurio's older serialisers have 8 bytes. No JSON text begins
with a zero byte, so the prefix is recognised without a setting. The schema is never read.
"""

from collections.abc import Sequence

from scorer.native.byte_columns import ByteColumn

PREFIX_BYTES = 5
LONG_PREFIX_BYTES = 9


def without_prefix(value: bytes) -> bytes:
    """Return the JSON of one event: the value after the prefix, or the whole value if it has no prefix."""
    if value[:1] != b"\0":
        return value
    return value[PREFIX_BYTES if any(value[:PREFIX_BYTES]) else LONG_PREFIX_BYTES :]


def without_prefixes(values: Sequence[bytes]) -> Sequence[bytes]:
    """Remove the prefixes of a batch if its first event has a prefix; otherwise return the batch unchanged.

    Only the first event is checked, so that batches without prefixes, the usual case, cost no time. If the first event has no
    prefix but a later event has one, the decoder rejects the batch, and then decodes each event separately with
    `without_prefix`.
    """
    if isinstance(values, ByteColumn):
        begins_with_zero = len(values) > 0 and values.starts[0] < values.ends[0] and values.text[values.starts[0]] == 0
    else:
        begins_with_zero = len(values) > 0 and values[0][:1] == b"\0"
    return list(map(without_prefix, values)) if begins_with_zero else values
