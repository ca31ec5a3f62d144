"""Registration of the schemas of written records in the schema registry, and the header that names a schema in a record.

The client's library is imported only if a schema is registered.
"""

import functools

from publisher.runtime.dependency_wait import schema_registry_unavailable
from scorer.settings.input import SchemaRegistrySettings

MAGIC = b"\0"
ID_BYTES = 5  # size of Confluent's header: MAGIC, then the schema's id, big-endian
SERVER_ERROR = 500
DENIED = (401, 403)
BUSY = (408, 429)  # request timeout, too many requests: the schema itself is not rejected


class SchemaRejected(Exception):
    """The schema registry rejects a schema. The message contains the reason; `hint` has the remedy."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class RegistrationDenied(SchemaRejected):
    """The schema registry does not allow this client to register schemas. The schema itself may be valid."""


def register_header(settings: SchemaRegistrySettings, topic: str, format_: str, text: str, records: str) -> bytes:
    """Register a schema under the subject `<topic>-value`, and return Confluent's header with the id of the schema.

    Args:
        settings: The address and the credentials of the schema registry.
        topic: The topic whose records have the schema.
        format_: The type of the schema: "avro", "protobuf" or "json".
        text: The schema.
        records: A name for the records of the topic in error messages, such as "the scores".

    Raises:
        SchemaRejected: The registry rejects the schema; RegistrationDenied if it rejects the credentials.
        DependencyUnavailable: The registry does not answer.
    """
    return MAGIC + _register(settings.model_dump_json(), topic, format_, text, records).to_bytes(ID_BYTES - 1, "big")


@functools.lru_cache
def _register(registry: str, topic: str, format_: str, text: str, records: str) -> int:
    """Register the schema in the registry, and return its id. The result is cached, because a schema's id never changes."""
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
    from httpx2 import TransportError

    from scorer.settings import registry_properties

    settings = SchemaRegistrySettings.model_validate_json(registry)
    registry_client = registry_properties.open_client(SchemaRegistryClient, settings.client)
    try:
        with registry_client as client:
            number: int = client.register_schema(f"{topic}-value", Schema(text, format_.upper()))
            return number
    except SchemaRegistryError as error:
        if error.http_status_code >= SERVER_ERROR or error.http_status_code in BUSY:
            raise schema_registry_unavailable(settings.url, error) from error
        if error.http_status_code in DENIED:
            hint = f"check the credentials in schema_registry.extra, and their right to register {topic}-value"
            raise RegistrationDenied(
                f"schema registry {settings.url} denies the registration of the schema of {records}: {error}", hint
            ) from error
        hint = f"check the compatibility of {topic}-value"
        raise SchemaRejected(f"schema registry {settings.url} rejects the schema of {records}: {error}", hint) from error
    except (TransportError, TypeError, ValueError) as error:
        raise schema_registry_unavailable(settings.url, error) from error
