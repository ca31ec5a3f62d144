"""Resolution of a schema's references, including indirect ones. Makes no HTTP requests."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from scorer.decoding.schema_formats.schema import LookUpFailed

MOST_REFERENCES = 300
"""Limit of one schema, with indirect references. A registry's answers are untrusted, and each reference costs a request."""


class Reference(NamedTuple):
    """The name by which a schema refers to another (an Avro type or a Protobuf import), and its place in the registry.

    The place is a subject and a version, or a group, an artifact and a version.
    """

    name: str
    place: tuple[str, ...]


class ReferencedSchema(NamedTuple):
    """The text of a referenced schema, and its own references."""

    text: str
    references: Sequence[Reference]


def resolve(references: Sequence[Reference], fetch: Callable[[Reference], ReferencedSchema]) -> tuple[tuple[str, str], ...]:
    """Fetch references and their own references, each name once, and return names and texts.

    A schema follows the schemas that it refers to. If one name refers to several schemas, the first one counts, in the
    depth-first order of Confluent's clients.

    Raises:
        LookUpFailed: A reference cannot be fetched (the error names it), or there are more than MOST_REFERENCES.
    """
    texts: dict[str, str] = {}
    started: set[str] = set()
    path: list[tuple[Reference, str]] = []  # from the schema to the reference whose own references are being fetched
    remaining = [iter(references)]
    while remaining:
        reference = next((candidate for candidate in remaining[-1] if candidate.name not in started), None)
        if reference is not None:
            started.add(reference.name)
            if len(started) > MOST_REFERENCES:
                raise LookUpFailed(f"the schema has more than {MOST_REFERENCES} references")
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
