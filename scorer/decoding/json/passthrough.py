"""Reading of values at given paths of JSON objects. msgspec decodes only the first field of each path."""

from collections.abc import Sequence
from typing import Any

import msgspec

from scorer.decoding.batch import Headers
from scorer.decoding.json import lenient
from scorer.decoding.json.schema_id_prefix import without_prefix
from scorer.decoding.passthrough_fields import Path, follow_path


class JsonPassthrough:
    """Reader of the values at paths of JSON objects; see `PathReader`. The first step of each path is a field name."""

    def __init__(self, paths: Sequence[Path]) -> None:
        names = list(dict.fromkeys(str(path[0]) for path in paths))
        self._paths = paths
        self._below = [(names.index(str(path[0])), path[1:]) for path in paths]
        fields = [(f"c{i}", Any, None) for i in range(len(names))]
        rename = {f"c{i}": name for i, name in enumerate(names)}
        self._decode = msgspec.json.Decoder(msgspec.defstruct("Event", fields, rename=rename, gc=False)).decode

    def values(self, event: bytes, headers: Headers = None) -> Sequence[Any]:  # noqa: ARG002 - JSON needs no schema
        """Return one value for each path; see `PathReader`."""
        event = without_prefix(event)
        try:
            columns = msgspec.structs.astuple(self._decode(event))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._read_leniently(event)
        return [follow_path(columns[column], path) for column, path in self._below]

    def _read_leniently(self, event: bytes) -> Sequence[Any]:
        """Return the values of an event that msgspec rejects, for example because of NaN; all None if the event is not JSON."""
        try:
            document = lenient.loads(event)
        except (ValueError, RecursionError):
            document = None
        return [follow_path(document, path) for path in self._paths]
