"""All that a schema refers to: its references, and theirs. No HTTP in here."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from scorer.decoding.schema_formats.schema import LookUpFailed

MOST_REFERENCES = 300
"""Of one schema, theirs included. A registry's answers are untrusted, and each reference costs a request."""


class Reference(NamedTuple):
    """The name that a schema gives to another one (an Avro type, the path of a Protobuf import), and its place in the registry.

    The place is a subject and a version, or a group, an artifact and a version.
    """

    name: str
    place: tuple[str, ...]


class ReferencedSchema(NamedTuple):
    """A schema that is referred to: its text, and its own references."""

    text: str
    references: Sequence[Reference]


def resolve(references: Sequence[Reference], fetch: Callable[[Reference], ReferencedSchema]) -> tuple[tuple[str, str], ...]:
    """Fetch references and theirs, each name once, and return names and texts.

    What a schema refers to stands before it. If one name is given to several schemas the first one counts, in the order of
    Confluent's clients: depth first.

    Raises:
        LookUpFailed: A reference cannot be fetched (the error names it), or there are more than MOST_REFERENCES.
    """
    texts: dict[str, str] = {}
    started: set[str] = set()
    path: list[tuple[Reference, str]] = []  # from the schema to the reference whose own are being fetched
    remaining = [iter(references)]
    while remaining:
        reference = next((one for one in remaining[-1] if one.name not in started), None)
        if reference is not None:
            started.add(reference.name)
            if len(started) > MOST_REFERENCES:
                raise LookUpFailed(f"the schema has more than {MOST_REFERENCES} references")
            referenced = _fetched(reference, fetch)
            path.append((reference, referenced.text))
            remaining.append(iter(referenced.references))
            continue
        remaining.pop()
        if path:
            done, text = path.pop()
            texts[done.name] = text
    return tuple(texts.items())


def _fetched(reference: Reference, fetch: Callable[[Reference], ReferencedSchema]) -> ReferencedSchema:
    try:
        return fetch(reference)
    except LookUpFailed as error:
        where = f"{reference.name!r:.200} ({', version '.join(reference.place[-2:])!s:.200})"
        raise LookUpFailed(f"its reference {where}: {error}", error.status) from None
