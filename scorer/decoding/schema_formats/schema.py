"""A schema, its name in a schema registry, and the errors of both."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

LARGEST_ID = 2**31 - 1


class SchemaId(NamedTuple):
    """The name of a schema in a registry: Confluent's id or GUID, or Apicurio's id of a content or of a version."""

    kind: Literal["id", "GUID", "content id", "global id"]
    value: int | str

    def __str__(self) -> str:
        return f"schema {self.value}" if self.kind == "id" else f"the schema with the {self.kind} {self.value}"


NO_ID = SchemaId("id", 0)


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as text, its format (`avro` or `protobuf`; empty: not known), and its references: names and texts.

    A Protobuf schema may be a descriptor set in place of text.
    """

    format: str
    text: str | bytes
    references: tuple[tuple[str, str], ...] = ()


class BadSchema(Exception):
    """The text is no schema of its format. The message says why."""


class LookUpFailed(Exception):
    """A request failed. `status` is the HTTP status of the answer, None if there was none."""

    NOT_FOUND = 404

    def __init__(self, error: str, status: int | None = None) -> None:
        super().__init__(error)
        self.status = status

    @property
    def unknown(self) -> bool:
        """Whether the registry reports that there is no such schema."""
        return self.status in (400, 404, 410, 422)

    @property
    def denied(self) -> bool:
        """Whether the registry refuses to answer this client."""
        return self.status in (401, 403)
