"""Fields below the top of an event: one compiled type for whole batches, whose events become rows."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import msgspec

from model_registry.package.event_tree import Tree, is_array, length
from scorer.decoding.tensors import Row

Leaf = tuple[Any, ...]
"""The msgspec type of a field, and what stands for it where it is absent; nothing where it is required."""
OPTIONS: dict[str, Any] = {"kw_only": True, "gc": False}


class NestedRows:
    """The msgspec type of events with a tree of fields.

    `leaves` has the type and the default of each field, in the order of the values of a row.
    """

    def __init__(self, tree: Tree, leaves: Mapping[str, Leaf]) -> None:
        self._ways: dict[str, str] = {}
        self.type, _ = self._part(tree, leaves, "")
        ways = [self._ways[name] for name in leaves]
        self._row = attrgetter(*ways)
        self._single = len(ways) == 1
        self._each = [(way.split("."), (*leaf, None, None)[1]) for way, leaf in zip(ways, leaves.values(), strict=True)]

    def row(self, event: Any) -> Row:
        """Return the row of an event of the type."""
        try:
            found = self._row(event)
        except AttributeError:  # a part is absent, with all that is in it
            return [_value(event, way, absent) for way, absent in self._each]
        return (found,) if self._single else found

    def _part(self, part: Tree, leaves: Mapping[str, Leaf], above: str) -> tuple[type[msgspec.Struct], bool]:
        """Return the type of an object or an array, and whether it has a required field."""
        fields: dict[str, Leaf] = {}
        array, required = is_array(part), False
        for number, (step, below) in enumerate(part.items()):
            own = f"f{step if array else number}"
            if isinstance(below, str):
                self._ways[below] = above + own
                fields[own] = leaves[below]
            else:
                type_, needed = self._part(below, leaves, f"{above}{own}.")
                fields[own] = (type_,) if needed else (type_ | None, None)
            required |= len(fields[own]) == 1
        if array:
            each = [(f"f{place}", *fields.get(f"f{place}", (Any, None))) for place in range(length(part))]
            return msgspec.defstruct("Array", each, array_like=True, **OPTIONS), required
        rename = {f"f{number}": str(name) for number, name in enumerate(part)}
        named = [(own, *leaf) for own, leaf in fields.items()]
        return msgspec.defstruct("Object", named, rename=rename, **OPTIONS), required


def _value(event: Any, way: list[str], absent: Any) -> Any:
    for own in way:
        if event is None:
            return absent
        event = getattr(event, own)
    return event
