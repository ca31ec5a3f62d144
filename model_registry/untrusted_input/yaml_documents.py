"""Reads untrusted YAML. A document holds only plain data, has unique keys, and is limited in depth and alias expansion."""

from collections.abc import Hashable
from typing import Any

import yaml

from model_registry.untrusted_input.json_documents import MAX_DEPTH, UnreadableDocument

MAX_NODES = 1_000_000
"""Most values in a document after alias expansion: nine lines of nested aliases can expand to a billion values."""

MERGE = "tag:yaml.org,2002:merge"  # `<<: *defaults`


class DuplicateKey(UnreadableDocument):
    """A YAML mapping has the same key twice; a parser that accepts this drops the first value silently."""


class _Loader(yaml.SafeLoader):
    """A YAML loader that limits the number of values and the depth, and rejects repeated keys."""

    def __init__(self, stream: bytes | str) -> None:
        super().__init__(stream)
        self._depth = self._nodes = 0
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        alias = self.check_event(yaml.AliasEvent)
        before = self._nodes
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise UnreadableDocument(f"the document nests more than {MAX_DEPTH} levels deep")
        node = super().compose_node(parent, index)
        self._depth -= 1
        if alias and id(node) not in self._sizes:
            raise UnreadableDocument("an alias names a value that contains the alias")
        self._nodes += self._sizes[id(node)] if alias else 1
        if self._nodes > MAX_NODES:
            raise UnreadableDocument(f"the document has more than {MAX_NODES:,} values")
        if not alias:
            self._sizes[id(node)] = self._nodes - before
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                break  # super().construct_mapping reports it
            if key in keys:
                raise DuplicateKey(
                    f"the key {key!r:.100} is given twice, the second time in line {key_node.start_mark.line + 1}"
                )
            keys.add(key)
        return super().construct_mapping(node, deep)


def load(text: bytes | str) -> Any:
    """Return the values of a YAML document.

    Raises UnreadableDocument. The error's message names the line of a syntax error but does not show the line's content.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise UnreadableDocument(_fault(error)) from None
    except RecursionError:
        raise UnreadableDocument(f"the document nests more than {MAX_DEPTH} levels deep") from None
    except UnreadableDocument:
        raise
    except (ValueError, TypeError, OverflowError, AttributeError, LookupError) as error:  # such as the date 2026-13-45
        raise UnreadableDocument(f"{error!s:.300}") from None


def _fault(error: yaml.YAMLError) -> str:
    """Return the description and line number of a YAML error, without the line's content, which may be a secret."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{error.problem} in line {error.problem_mark.line + 1}"
    return type(error).__name__
