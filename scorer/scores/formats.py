"""The record encoder of `output.format`, and records read back as JSON. What a format needs is imported where it is chosen.

With a schema registry, records begin with Confluent's header and the schema is registered as `<topic>-value`; without one, they
are the bytes of the record alone.
"""

import functools
from collections.abc import Callable, Sequence

import orjson

from model_registry.extras import install_command
from publisher.errors import Fatal
from publisher.runtime.dependencies import schema_registry_unavailable
from scorer.scores import schema as record_schema
from scorer.scores.record import RecordEncoder
from scorer.settings import Settings
from scorer.settings.carry import CarriedField

MAGIC = b"\0"
ID_BYTES = 5  # of Confluent's header: MAGIC, then the schema's id, big-endian
SERVER_ERROR = 500


def encoder(settings: Settings, **provenance: str) -> RecordEncoder:
    """For one version. Raises Fatal where the format's library is missing or the schema registry does not take the
    schema, Away where it does not answer."""
    output, carry = settings.output.format, tuple(settings.output.carry)
    if output == "json":
        return RecordEncoder(carry, **provenance)
    header = _header(settings, schema(output, carry))
    if output == "avro":
        from scorer.scores.avro_record import AvroRecordEncoder

        return AvroRecordEncoder(header, carry, **provenance)
    from scorer.scores.protobuf_record import PATH, ProtobufRecordEncoder

    return ProtobufRecordEncoder(header + PATH if header else b"", carry, **provenance)


def schema(format_: str, carry: Sequence[CarriedField] = ()) -> str:
    """Return the avro or protobuf schema of the record with these carried fields. Raises Fatal if a library is missing."""
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
    """Return a function that converts a record of the configured format to JSON and raises ValueError for any other value."""
    if settings.output.format == "json":
        return bytes
    start, carry = ID_BYTES if settings.schema_registry.url else 0, tuple(settings.output.carry)
    if settings.output.format == "avro":
        from scorer.scores import avro_record

        return lambda value: orjson.dumps(avro_record.as_json(_headed(value, start), start, carry))
    from scorer.scores import protobuf_record

    start += len(protobuf_record.PATH) if start else 0
    return lambda value: orjson.dumps(protobuf_record.as_json(_headed(value, start), start, carry))


def _headed(value: bytes, start: int) -> bytes:
    """The same record. Raises ValueError where it lacks a header of `start` bytes."""
    if start and not value.startswith(MAGIC):
        raise ValueError("no score record: it does not begin with the number of a schema")
    return value


def _header(settings: Settings, text: str) -> bytes:
    if settings.schema_registry.url is None:
        return b""
    number = _registered(settings.schema_registry.model_dump_json(), settings.output.topic, settings.output.format, text)
    return MAGIC + number.to_bytes(ID_BYTES - 1, "big")


@functools.lru_cache
def _registered(registry: str, topic: str, format_: str, text: str) -> int:
    """The schema's id. Asked once in a process: it never changes."""
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
    from httpx2 import TransportError

    from scorer.settings import registry_properties
    from scorer.settings.input import SchemaRegistrySettings

    settings = SchemaRegistrySettings.model_validate_json(registry)
    opened = registry_properties.open_client(SchemaRegistryClient, settings.client)
    try:
        with opened as client:
            number: int = client.register_schema(f"{topic}-value", Schema(text, format_.upper()))
            return number
    except SchemaRegistryError as error:
        if error.http_status_code >= SERVER_ERROR:
            raise schema_registry_unavailable(settings.url, error) from error
        hint = f"check schema_registry.extra and the compatibility of {topic}-value"
        raise Fatal(f"schema registry {settings.url} does not take the schema of scores: {error}", hint, 3) from error
    except (TransportError, TypeError, ValueError) as error:
        raise schema_registry_unavailable(settings.url, error) from error
