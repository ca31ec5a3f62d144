"""What stands at some paths of Avro and Protobuf events, each read by the schema that it was written with."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from model_registry.package.signature import Signature
from scorer.dead_letters.reasons import Poison
from scorer.decoding.batch import Headers
from scorer.decoding.passthrough_fields import Path
from scorer.decoding.row_schema import RowSchema
from scorer.decoding.schema_formats.schema_lookup import Key, SchemaSource, create_schema_source, start_of
from scorer.settings import Settings


class SchemaPassthrough:
    """See `PathReader`; `schemas` is where readers come from, without it the configured source. Raises Fatal as
    SchemaDecoder does."""

    def __init__(self, settings: Settings, paths: Sequence[Path], schemas: SchemaSource | None = None) -> None:
        fields = RowSchema(Signature((), ()), None, settings.input.max_event_bytes)
        found = schemas or create_schema_source(settings)
        self._nothing = [None] * len(paths)
        self._key = found.key
        self._at: Callable[[Key], Callable[[bytes, int], list[Any]]] = cache(
            lambda key: found.reader(key, fields, None).at(paths)
        )

    def values(self, event: bytes, headers: Headers = None) -> Sequence[Any]:
        try:
            key = self._key(event, headers)
            return self._at(key)(event, start_of(key))
        except Poison:
            return self._nothing
