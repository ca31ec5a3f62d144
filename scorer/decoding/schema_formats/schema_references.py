"""Collection of the schemas that a schema refers to, directly or indirectly. The caller makes the HTTP requests."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from scorer.decoding.schema_formats.schema import LookUpFailed

MAX_REFERENCES = 300
"""Limit of one schema's direct and indirect references, because a registry is untrusted and each reference costs a request."""


class Reference(NamedTuple):
    """The reference from one schema to another schema.

    Attributes:
        name: the name in the referring schema, which is an Avro type or a Protobuf import.
        place: the location in the registry: subject and version, or group, artifact and version.
    """

    name: str
    place: tuple[str, ...]


class ReferencedSchema(NamedTuple):
    """The text of a referenced schema, and the references from this text to further schemas."""

    text: str
    references: Sequence[Reference]


def resolve(references: Sequence[Reference], fetch: Callable[[Reference], ReferencedSchema]) -> tuple[tuple[str, str], ...]:
    """Fetch all schemas that a schema refers to, directly or indirectly. Each name is fetched once.

    Args:
        references: the direct references of the schema.
        fetch: a function that returns the schema of a reference; raises LookUpFailed.

    Returns:
        The name and the text of each referenced schema. Each schema comes after the schemas that it refers to. If a name refers
            to several schemas, the first one in depth-first order is used, as in Confluent's clients.

    Raises:
        LookUpFailed: A reference cannot be fetched (the error names it), or there are more than MAX_REFERENCES references.
    """
    texts: dict[str, str] = {}
    started: set[str] = set()
    path: list[tuple[Reference, str]] = []  # from the schema to the reference whose own references are being fetched
    remaining = [iter(references)]
    while remaining:
        reference = next((candidate for candidate in remaining[-1] if candidate.name not in started), None)
        if reference is not None:
            started.add(reference.name)
            if len(started) > MAX_REFERENCES:
                raise LookUpFailed(f"the schema has more than {MAX_REFERENCES} references")
            referenced = _fetch_reference(reference, fetch)
            path.append((reference, referenced.text))
            remaining.append(iter(referenced.references))
            continue
        remaining.pop()
        if path:
            done, text = path.pop()
            texts[done.name] = text
    return tuple(texts.items())


def _fetch_reference(reference: Reference, fetch: Callable[[Reference], ReferencedSchema]) -> ReferencedSchema:
    try:
        return fetch(reference)
    except LookUpFailed as error:
        position = f"{reference.name!r:.200} ({', version '.join(reference.place[-2:])!s:.200})"
        raise LookUpFailed(f"its reference {position}: {error}", error.status) from None
