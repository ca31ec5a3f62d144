"""Decoding of score records from JSON to typed records. `formats.as_json` converts the other formats to JSON."""

# Two readers do not use this module. The canary analysis reads millions of records a minute, and has a decoder for many records
# in one call (`rollout/canary_analysis/answer_records.py`). The audit is part of the publisher, which must not import the
# scorer.

from typing import Annotated, Any

import msgspec

from model_registry.untrusted_input.json_documents import DocumentDecoder, Int64
from publisher.kafka.source_position import LARGEST_OFFSET, LARGEST_PARTITION

LATEST_MS = 1 << 60
UnixMs = Annotated[int, msgspec.Meta(ge=0, le=LATEST_MS)]


class EventPosition(msgspec.Struct, frozen=True, gc=False):
    """The position of the scored event in its input topic."""

    topic: str
    partition: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_PARTITION)]
    offset: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_OFFSET)]


class ScoreRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The fields of a score record without the score itself. `scores/schema.py` describes the fields."""

    id: str
    status: str
    version: str
    digest: str
    source: EventPosition
    event_ms: UnixMs
    scored_ms: UnixMs
    role: str = "champion"

    @property
    def versioned(self) -> str:
        """The version as `version@digest`."""
        return f"{self.version}@{self.digest}"


class CompleteScoreRecord(ScoreRecord, frozen=True, gc=False, kw_only=True):
    """A score record with its score: a number, an array, an object of named outputs, or None for an expired event."""

    score: Any = None
    decision: str | None = None
    arm: str = ""
    revision: Int64 = 0
    fallback: str | None = None


class FullScoreRecord(CompleteScoreRecord, frozen=True, gc=False, kw_only=True):
    """A score record with all its fields. `carried` has the fields of `output.carry`; None if `output.carry` was empty."""

    model: str = ""
    region: str = ""
    carried: dict[str, str | int | float | bool | None] | None = None


decode_record = DocumentDecoder(ScoreRecord).decode
"""Decode a record without its score, which is faster. Raises UnreadableDocument, which is a ValueError."""
decode_complete_record = DocumentDecoder(CompleteScoreRecord).decode
"""Decode a record with its score. Raises UnreadableDocument, which is a ValueError."""
decode_full_record = DocumentDecoder(FullScoreRecord).decode
"""Decode a record with all its fields. Raises UnreadableDocument, which is a ValueError."""
