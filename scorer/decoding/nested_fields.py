"""Reading of nested fields with one compiled msgspec type for all events, and conversion of the events to rows."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import msgspec

from model_registry.package.event_tree import Tree, is_array, length
from scorer.decoding.tensors import Row

Leaf = tuple[Any, ...]
"""(msgspec type, default for an absent field) of an optional field, or (msgspec type,) of a required field."""
OPTIONS: dict[str, Any] = {"kw_only": True, "gc": False}


class NestedRows:
    """The msgspec type of events with nested fields, and the conversion of these events to rows.

    `tree` has the paths of the fields. `leaves` has the msgspec type and the default of each field, in the order of the values
    of a row.
    """

    def __init__(self, tree: Tree, leaves: Mapping[str, Leaf]) -> None:
        self._attribute_paths: dict[str, str] = {}
        self.type, _ = self._build_type(tree, leaves, "")
        attribute_paths = [self._attribute_paths[name] for name in leaves]
        self._row = attrgetter(*attribute_paths)
        self._single = len(attribute_paths) == 1
        self._each = [
            (path.split("."), (*leaf, None, None)[1]) for path, leaf in zip(attribute_paths, leaves.values(), strict=True)
        ]

    def row(self, event: Any) -> Row:
        """Return the row of an event that msgspec has decoded to `type`."""
        try:
            values = self._row(event)
        except AttributeError:  # an object or array is absent, with all its fields
            return [_get_value(event, path, absent) for path, absent in self._each]
        return (values,) if self._single else values

    def _build_type(self, part: Tree, leaves: Mapping[str, Leaf], above: str) -> tuple[type[msgspec.Struct], bool]:
        """Build the msgspec type of one object or array of the tree.

        `above` is the prefix of the attribute paths to its fields: empty, or such as `f0.f1.`.

        Returns:
            The type, and whether it contains a required field.
        """
        fields: dict[str, Leaf] = {}
        array = is_array(part)
        required = False
        for number, (step, below) in enumerate(part.items()):
            attribute = f"f{step if array else number}"
            if isinstance(below, str):
                self._attribute_paths[below] = above + attribute
                fields[attribute] = leaves[below]
            else:
                type_, needed = self._build_type(below, leaves, f"{above}{attribute}.")
                fields[attribute] = (type_,) if needed else (type_ | None, None)
            required |= len(fields[attribute]) == 1
        if array:
            elements = [(f"f{place}", *fields.get(f"f{place}", (Any, None))) for place in range(length(part))]
            return msgspec.defstruct("Array", elements, array_like=True, **OPTIONS), required
        rename = {f"f{number}": str(name) for number, name in enumerate(part)}
        named = [(attribute, *leaf) for attribute, leaf in fields.items()]
        return msgspec.defstruct("Object", named, rename=rename, **OPTIONS), required


def _get_value(event: Any, path: list[str], absent: Any) -> Any:
    for attribute in path:
        if event is None:
            return absent
        event = getattr(event, attribute)
    return event
