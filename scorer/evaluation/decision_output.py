"""Find the output that a version decides on, where its scores are objects of several named outputs.

Score records do not name it; the version's signature in the registry does. Depends on the registry only for such scores.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec.structs import replace

from model_registry import package
from model_registry.errors import NotFound
from model_registry.stores import resolve_index
from model_registry.stores.base import Store

UNKNOWN = "no signature in the registry names the output that it decides on"

AnswerT = TypeVar("AnswerT", bound=Any)  # a msgspec struct with a digest and a score


def decided_output(store: Store, digest: str) -> str | None:
    """Return the name of the output that a version decides on; None if the registry does not state it.

    Raises:
        RegistryError: if the registry is unavailable, or what it has is no version.
    """
    try:
        signature = package.signature_of(store, resolve_index.describe_version(store, digest))
    except NotFound:
        return None
    return None if signature is None else signature.decided.name


def part_of(score: Any, name: str | None) -> Any:
    """Return the part of a score (JSON) that figures are made of: of several outputs the one called `name`, else None."""
    return score.get(name) if isinstance(score, dict) else score


class DecidedOutputs:
    """Look up each version once, when a score of it has several outputs. `names` has the output of each version that was looked
    up, None if unknown; `unknown` counts scores without a known output. Both are by digest."""

    def __init__(self, find: Callable[[str], str | None], names: Mapping[str, str | None] = MappingProxyType({})) -> None:
        """Start with the versions of which the output is known.

        Args:
            find: returns the name of the output that the version with a digest decides on, or None.
            names: the outputs by digest that are not looked up.
        """
        self._find = find
        self.names = dict(names)
        self.unknown: Counter[str] = Counter()

    def score(self, digest: str, score: Any) -> Any:
        """Return the part of a version's score that figures are made of; None if it is unknown.

        Raises:
            RegistryError: if the registry is unavailable.
        """
        if not isinstance(score, dict):
            return score
        if len(score) == 1:
            return next(iter(score.values()))
        if digest not in self.names:
            self.names[digest] = self._find(digest)
        name = self.names[digest]
        if name is None:
            self.unknown[digest] += 1
        return part_of(score, name)

    def answers(self, answers: Sequence[AnswerT]) -> Sequence[AnswerT]:
        """Return the same answers with the parts of their scores that figures are made of. Raises as `score` does."""
        if dict not in set(map(type, [each.score for each in answers])):
            return answers
        return [replace(each, score=self.score(each.digest, each.score)) for each in answers]
