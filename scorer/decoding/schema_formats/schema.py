"""Schemas, their identifiers in a schema registry, and the errors of invalid schemas and failed requests."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

LARGEST_ID = 2**31 - 1


class SchemaId(NamedTuple):
    """The identifier of a schema in a registry: an id or GUID of Confluent, or a content id or global id of Apicurio."""

    kind: Literal["id", "GUID", "content id", "global id"]
    value: int | str

    def __str__(self) -> str:
        return f"schema {self.value}" if self.kind == "id" else f"the schema with the {self.kind} {self.value}"


NO_ID = SchemaId("id", 0)


@dataclass(frozen=True, slots=True)
class Schema:
    """The text of a schema, its format, and the schemas that it refers to.

    Attributes:
        format: `avro` or `protobuf`; "" if unknown.
        text: the text of the schema; bytes for a Protobuf descriptor set.
        references: the name and the text of each referenced schema, including indirect references.
    """

    format: str
    text: str | bytes
    references: tuple[tuple[str, str], ...] = ()


class BadSchema(Exception):
    """The text is not a valid schema of its format. The message contains the reason."""


class LookUpFailed(Exception):
    """A request to the schema registry failed. `status` is the HTTP status; None if the registry did not respond."""

    NOT_FOUND = 404

    def __init__(self, error: str, status: int | None = None) -> None:
        super().__init__(error)
        self.status = status

    @property
    def unknown(self) -> bool:
        """Whether the registry reports that the schema does not exist."""
        return self.status in (400, 404, 410, 422)

    @property
    def denied(self) -> bool:
        """Whether the registry denies access to this client."""
        return self.status in (401, 403)
