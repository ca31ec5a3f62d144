"""What stands at some paths of Avro and Protobuf events, each read by the schema that it was written with."""

from collections.abc import Sequence
from typing import Any

from model_registry.package.signature import Signature
from scorer.events.carrying import Path
from scorer.events.decoder import Poison
from scorer.events.fields import Fields
from scorer.events.schemas.sources import Reader, Source, source
from scorer.settings import Settings


class SchemaCarried:
    """See `PathReader`; `schemas` is where readers come from, without it the configured source. Raises Fatal as
    SchemaDecoder does."""

    def __init__(self, settings: Settings, paths: Sequence[Path], schemas: Source | None = None) -> None:
        self._paths = paths
        self._fields = Fields(Signature((), ()), None, settings.input.max_event_bytes)
        self._source = schemas or source(settings)
        self._readers: dict[bytes, Reader] = {}

    def values(self, event: bytes) -> Sequence[Any]:
        try:
            header = self._source.header(event)
            if header not in self._readers:
                self._readers[header] = self._source.reader(header, self._fields, None)
            return self._readers[header].at(event, len(header), self._paths)
        except Poison:
            return [None] * len(self._paths)
