"""HTTP requests to a schema registry.

Schemas are requested through Confluent's client from Confluent's API, which Apicurio also provides. Ids that Apicurio's
serialisers write to headers are requested from Apicurio's own API.
"""

from collections.abc import Callable
from typing import TypeVar
from urllib.parse import quote

from confluent_kafka.schema_registry import Schema as ConfluentSchema
from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError
from httpx2 import HTTPError, Response

from model_registry.untrusted_input import json_documents
from scorer.decoding.schema_formats.schema import LookUpFailed, Schema, SchemaId
from scorer.decoding.schema_formats.schema_references import Reference, ReferencedSchema, resolve
from scorer.settings import registry_properties
from scorer.settings.input import SchemaRegistrySettings

T = TypeVar("T")
NATIVE = ("apis/registry/v2", "apis/registry/v3")
"""Paths of versions 2 and 3 of Apicurio's own API. Both Apicurio 2 and Apicurio 3 provide the first path."""
NATIVE_IDS = {"content id": "contentIds", "global id": "globalIds"}


class _ConfluentClient(SchemaRegistryClient):
    """Confluent's client with an additional method for Apicurio's own API, which uses the same TLS, credentials and retries."""

    def native(self, path: str, content: str = "") -> Response:
        """Send a GET request to version 2 of Apicurio's own API. If version 2 lacks the path, use version 3.

        `content` is appended to the path only in version 3. Raises LookUpFailed.
        """
        rest = self._rest_client
        headers = {"Accept": "*/*"}
        if rest.bearer_auth_credentials_source:
            rest.handle_bearer_auth(headers)
        root = rest.base_urls[0].partition("/apis/")[0]
        for below in (f"{NATIVE[0]}/{path}", f"{NATIVE[1]}/{path}{content}"):
            answer = rest.send_http_request(root, below, "GET", headers)
            if answer.status_code != LookUpFailed.NOT_FOUND:
                break
        if not answer.is_success:
            raise LookUpFailed(f"HTTP status code {answer.status_code}: {answer.text[:300]}", answer.status_code)
        return answer


class SchemaRegistryHttpClient:
    """The `SchemaClient` over HTTP. All requests use one HTTP session, so that connections are reused.

    Raises Fatal if the settings contradict each other.
    """

    def __init__(self, settings: SchemaRegistrySettings) -> None:
        self._session = registry_properties.open_client(_ConfluentClient, settings.client)
        self._good: int | None = None  # an id that was answered

    def schema(self, schema_id: SchemaId) -> Schema:
        return _send(
            lambda: self._fetch_native(schema_id) if schema_id.kind in NATIVE_IDS else self._fetch_confluent(schema_id)
        )

    def probe(self) -> None:
        """Request a schema that was fetched before, then one subject, then the configuration, until one request succeeds.

        Several requests are tried because this client may lack the permission for some of them. Raises LookUpFailed if no
        request succeeds.
        """
        session = self._session
        session.clear_caches()  # type: ignore[no-untyped-call]
        probes: list[Callable[[], object]] = [lambda: session.get_subjects(limit=1), session.get_config]
        if (reachable := self._good) is not None:
            probes.insert(0, lambda: session.get_schema(reachable))
        failures: list[LookUpFailed] = []
        for probe in probes:
            try:
                _send(probe)
            except LookUpFailed as error:
                failures.append(error)
                if error.status is None:
                    break
            else:
                return
        raise next((error for error in failures if not error.denied), failures[0])

    def _fetch_confluent(self, schema_id: SchemaId) -> Schema:
        session = self._session
        value = schema_id.value
        schema = session.get_schema(value) if isinstance(value, int) else session.get_schema_by_guid(value)
        references = resolve(_references(schema), self._fetch_version)
        if isinstance(value, int):
            self._good = value
        return Schema((schema.schema_type or "AVRO").lower(), schema.schema_str or "", references)

    def _fetch_version(self, reference: Reference) -> ReferencedSchema:
        """Fetch a referenced version of a subject. A deleted version is fetched too, because events may still use it."""
        subject, version = reference.place
        answer = _send(lambda: self._session.get_version(subject, int(version), deleted=True))
        return ReferencedSchema(answer.schema.schema_str or "", _references(answer.schema))

    def _fetch_native(self, schema_id: SchemaId) -> Schema:
        """Fetch a schema by its content id or global id from Apicurio's own API.

        For a content id, the API does not return the format of the schema, so the schema is read in the configured format.
        """
        path = f"ids/{NATIVE_IDS[schema_id.kind]}/{schema_id.value}"
        text = self._session.native(path).text
        return Schema("", text, resolve(self._fetch_native_references(path), self._fetch_native_version))

    def _fetch_native_version(self, reference: Reference) -> ReferencedSchema:
        group, artifact, version = (quote(part, safe="") for part in reference.place)
        path = f"groups/{group}/artifacts/{artifact}/versions/{version}"
        return _send(lambda: ReferencedSchema(self._session.native(path, "/content").text, self._fetch_native_references(path)))

    def _fetch_native_references(self, path: str) -> list[Reference]:
        """Fetch the references of the schema at a path of Apicurio's own API."""
        return [
            Reference(str(entry["name"]), (entry.get("groupId") or "default", entry["artifactId"], str(entry["version"])))
            for entry in json_documents.ANY.decode(self._session.native(f"{path}/references").text)
        ]


def _references(schema: ConfluentSchema) -> list[Reference]:
    return [Reference(entry.name or "", (entry.subject or "", str(entry.version or -1))) for entry in schema.references or []]


def _send(request: Callable[[], T]) -> T:
    """Call a function that sends a request. Raises LookUpFailed for every failure, including an unexpected response."""
    try:
        return request()
    except SchemaRegistryError as error:
        raise LookUpFailed(str(error), error.http_status_code) from None
    except LookUpFailed:
        raise
    except HTTPError as error:
        raise LookUpFailed(str(error) or type(error).__name__) from None
    except Exception as error:  # noqa: BLE001 - an unexpected response fails at many places in the client
        raise LookUpFailed(f"not the response of a schema registry: {error!r}") from None
