"""The direct and indirect references of a schema: the fetched subjects, their order, and the errors."""

from collections.abc import Mapping, Sequence

import pytest

from scorer.decoding.schema_formats.schema import LookUpFailed
from scorer.decoding.schema_formats.schema_references import MAX_REFERENCES, Reference, ReferencedSchema, resolve


def referenced(name: str, version: int = 1) -> Reference:
    return Reference(name, (f"{name}-subject", str(version)))


class Subjects:
    """The references of each schema by name. `fetched` are the requests."""

    def __init__(self, references: Mapping[str, Sequence[Reference]]) -> None:
        self._references = references
        self.fetched: list[Reference] = []

    def fetch(self, reference: Reference) -> ReferencedSchema:
        self.fetched.append(reference)
        if reference.name not in self._references:
            raise LookUpFailed("no such subject", 404)
        return ReferencedSchema(f"{reference.name}@{reference.place[1]}", self._references[reference.name])


@pytest.mark.parametrize(
    ("top", "references", "expected"),
    [
        ([], {}, []),
        (["a"], {"a": []}, ["a"]),
        (["a"], {"a": ["b"], "b": ["c"], "c": []}, ["c", "b", "a"]),
        (["a", "b"], {"a": ["c"], "b": ["c"], "c": []}, ["c", "a", "b"]),
        (["a", "c"], {"a": ["b"], "b": ["c"], "c": []}, ["c", "b", "a"]),
        (["a"], {"a": ["b"], "b": ["a"]}, ["b", "a"]),
        (["", "a"], {"": ["a"], "a": []}, ["a", ""]),
    ],
)
def test_referenced_schemas_come_first_and_once(top: list[str], references: dict[str, list[str]], expected: list[str]) -> None:
    subjects = Subjects({name: list(map(referenced, names)) for name, names in references.items()})
    texts = resolve(list(map(referenced, top)), subjects.fetch)
    assert texts == tuple((name, f"{name}@1") for name in expected)
    assert len(subjects.fetched) == len(expected)


def test_the_first_of_two_versions_counts_depth_first() -> None:
    subjects = Subjects({"a": [referenced("c", 1)], "c": []})
    assert dict(resolve([referenced("a"), referenced("c", 2)], subjects.fetch))["c"] == "c@1"
    assert dict(resolve([referenced("c", 2), referenced("a")], subjects.fetch))["c"] == "c@2"


def test_a_reference_that_cannot_be_fetched_is_named() -> None:
    subjects = Subjects({"a": [referenced("b", 3)]})
    with pytest.raises(LookUpFailed) as raised:
        resolve([referenced("a")], subjects.fetch)
    assert str(raised.value) == "its reference 'b' (b-subject, version 3): no such subject"
    assert raised.value.status == 404


def test_endless_references_are_an_error() -> None:
    def fetch(reference: Reference) -> ReferencedSchema:
        return ReferencedSchema("", [referenced(f"{reference.name}x")])

    with pytest.raises(LookUpFailed, match=f"more than {MAX_REFERENCES} references"):
        resolve([referenced("x")], fetch)
