"""Reading of values at given paths of Avro and Protobuf events, each event with its writer's schema."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from model_registry.package.signature import Signature
from scorer.dead_letters.reasons import Poison
from scorer.decoding.batch import Headers
from scorer.decoding.passthrough_fields import Path
from scorer.decoding.row_schema import RowSchema
from scorer.decoding.schema_formats.schema_source import Key, SchemaSource, create_schema_source, start_of
from scorer.settings import Settings


class SchemaPassthrough:
    """Reader of the values at paths of Avro and Protobuf events; see `PathReader`.

    `schemas` is the source of the schemas; None to use the configured source. Raises Fatal under the same conditions as
    SchemaDecoder.
    """

    def __init__(self, settings: Settings, paths: Sequence[Path], schemas: SchemaSource | None = None) -> None:
        fields = RowSchema(Signature((), ()), None, settings.input.max_event_bytes)
        source = schemas or create_schema_source(settings)
        self._nothing = [None] * len(paths)
        self._find_key = source.key
        self._path_reader: Callable[[Key], Callable[[bytes, int], list[Any]]] = cache(
            lambda key: source.reader(key, fields, None).path_reader(paths)
        )

    def values(self, event: bytes, headers: Headers = None) -> Sequence[Any]:
        try:
            key = self._find_key(event, headers)
            return self._path_reader(key)(event, start_of(key))
        except Poison:
            return self._nothing
