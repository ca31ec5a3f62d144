"""Find the output on which a version bases its decision, if its scores are JSON objects with several named outputs.

Score records do not name this output; the version's signature in the registry does.
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
    """Return the name of the output on which a version bases its decision; None if the registry does not state it.

    Raises:
        RegistryError: If the registry is unavailable, or if the digest is not that of a version.
    """
    try:
        signature = package.signature_of(store, resolve_index.describe_version(store, digest))
    except NotFound:
        return None
    return None if signature is None else signature.decided.name


def select_output(score: Any, name: str | None) -> Any:
    """Return the output `name` of a score; None if the score has no such output. A score without named outputs is unchanged."""
    return score.get(name) if isinstance(score, dict) else score


class DecidedOutputs:
    """Selects, from scores with several named outputs, the output on which the version bases its decision.

    Attributes:
        names: The name of this output, by the digest of the version; None if the name is unknown.
        unknown: The number of scores for which this name is unknown, by the digest of the version.
    """

    # A version is looked up once, at its first score with several outputs.

    def __init__(self, find: Callable[[str], str | None], names: Mapping[str, str | None] = MappingProxyType({})) -> None:
        """Create an instance that has counted no scores.

        Args:
            find: A function from a version's digest to the name of the output; None if the name is unknown.
            names: The names that are known already, by digest.
        """
        self._find = find
        self.names = dict(names)
        self.unknown: Counter[str] = Counter()

    def score(self, digest: str, score: Any) -> Any:
        """Return the output of a score on which its version bases the decision; None if this output is unknown.

        A score without named outputs is returned unchanged.

        Raises:
            RegistryError: If the registry is unavailable.
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
        return select_output(score, name)

    def answers(self, answers: Sequence[AnswerT]) -> Sequence[AnswerT]:
        """Return the answers, with each score reduced to the output on which the version bases its decision.

        Raises:
            RegistryError: If the registry is unavailable.
        """
        if dict not in set(map(type, [each.score for each in answers])):
            return answers
        return [replace(each, score=self.score(each.digest, each.score)) for each in answers]
