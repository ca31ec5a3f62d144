"""What stands at some paths of Avro and Protobuf events, each read by the schema that it was written with."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from model_registry.package.signature import Signature
from scorer.events.carrying import Path
from scorer.events.decoder import Poison
from scorer.events.fields import Fields
from scorer.events.schemas.sources import Source, source
from scorer.settings import Settings


class SchemaCarried:
    """See `PathReader`; `schemas` is where readers come from, without it the configured source. Raises Fatal as
    SchemaDecoder does."""

    def __init__(self, settings: Settings, paths: Sequence[Path], schemas: Source | None = None) -> None:
        fields = Fields(Signature((), ()), None, settings.input.max_event_bytes)
        found = schemas or source(settings)
        self._nothing = [None] * len(paths)
        self._header = found.header
        self._at: Callable[[bytes], Callable[[bytes, int], list[Any]]] = cache(
            lambda header: found.reader(header, fields, None).at(paths)
        )

    def values(self, event: bytes) -> Sequence[Any]:
        try:
            header = self._header(event)
            return self._at(header)(event, len(header))
        except Poison:
            return self._nothing
