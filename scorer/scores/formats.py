"""Selection of the record encoder for `output.format`, and conversion of records to JSON. Only that format's code is imported.

With a schema registry, each Avro or Protobuf record begins with Confluent's header, which has the schema's id.
"""

from collections.abc import Callable, Sequence

import orjson

from model_registry.extras import install_command
from publisher.errors import Fatal
from scorer.scores import schema as record_schema
from scorer.scores.record import RecordEncoder
from scorer.scores.schema_registration import ID_BYTES, MAGIC, SchemaRejected, register_header
from scorer.settings import Settings
from scorer.settings.carry import CarriedField


def encoder(settings: Settings, **provenance: str) -> RecordEncoder:
    """Create the record encoder of one version.

    Args:
        settings: the output format, the carried fields and the schema registry.
        provenance: the fields of the record that describe the version; see `RecordEncoder`.

    Raises:
        Fatal: the format's library is missing, or the schema registry rejects the schema.
        DependencyUnavailable: the schema registry does not answer.
    """
    output = settings.output.format
    carry = tuple(settings.output.carry)
    if output == "json":
        return RecordEncoder(carry, **provenance)
    header = _create_header(settings, schema(output, carry))
    if output == "avro":
        from scorer.scores.avro_record import AvroRecordEncoder

        return AvroRecordEncoder(header, carry, **provenance)
    from scorer.scores.protobuf_record import PATH, ProtobufRecordEncoder

    return ProtobufRecordEncoder(header + PATH if header else b"", carry, **provenance)


def schema(format_: str, carry: Sequence[CarriedField] = ()) -> str:
    """Return the Avro or Protobuf schema of score records with these carried fields. Raises Fatal if a library is missing."""
    try:
        if format_ == "avro":
            import fastavro  # noqa: F401 - a scorer that writes Avro can read it too: the console and the audit do

            return record_schema.avro(carry)
        import google.protobuf  # noqa: F401

        return record_schema.protobuf(carry)
    except ImportError as error:
        hint = install_command(format_)
        raise Fatal(f"{format_} needs the extra {format_!r}: {error}", hint, 2) from error


def as_json(settings: Settings) -> Callable[[bytes], bytes]:
    """Return a function that converts a record of the configured format to JSON.

    The function raises ValueError if the value is not a score record. JSON records are returned unchecked.
    """
    if settings.output.format == "json":
        return bytes
    start = ID_BYTES if settings.schema_registry.url else 0
    carry = tuple(settings.output.carry)
    if settings.output.format == "avro":
        from scorer.scores import avro_record

        return lambda value: orjson.dumps(avro_record.as_json(_require_header(value, start), start, carry))
    from scorer.scores import protobuf_record

    start += len(protobuf_record.PATH) if start else 0
    return lambda value: orjson.dumps(protobuf_record.as_json(_require_header(value, start), start, carry))


def _require_header(value: bytes, start: int) -> bytes:
    """Return the value unchanged. Raises ValueError if records have a header (`start` > 0), and this value has no header."""
    if start and not value.startswith(MAGIC):
        raise ValueError("this is not a score record, because it does not begin with the id of a schema")
    return value


def _create_header(settings: Settings, text: str) -> bytes:
    if settings.schema_registry.url is None:
        return b""
    output = settings.output
    try:
        return register_header(settings.schema_registry, output.topic, output.format, text, "the scores")
    except SchemaRejected as error:
        raise Fatal(str(error), error.hint, 3) from error
