"""Select the score records to correct: by digest of the version, status, and scoring time. Pure."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from publisher.runtime.time_range import ALWAYS, TimeRange
from scorer.scores.decode_record import ScoreRecord, decode_record

SHOWN_DIGITS = 12  # the digits of a digest in the name of a job
USUAL = ("fallback", "scored")
"""The statuses of the score records that are corrected by default. Expired answers are left out because they have no score."""

AsJson = Callable[[bytes], bytes]
"""Converts a score record of any format to JSON; raises ValueError for other bytes."""


def read(value: bytes | None, as_json: AsJson) -> ScoreRecord | None:
    """Decode the value of a score record; None if the value is not a score record."""
    try:
        return decode_record(as_json(value or b""))
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class ScoreSelection:
    """A predicate that selects score records by version, status and scoring time.

    Attributes:
        digest: The digest of the version that scored the event; None for any version.
        statuses: The statuses of selected records.
        window: The range of scoring times.
    """

    digest: str | None = None
    statuses: tuple[str, ...] = USUAL
    window: TimeRange = ALWAYS

    def includes(self, record: ScoreRecord) -> bool:
        """Return whether the selection contains this record."""
        wanted = (self.digest is None or record.digest == self.digest) and record.status in self.statuses
        return wanted and self.window.contains(record.scored_ms)

    def name(self) -> str:
        """Return the default name of a job with this selection.

        Equal selections have equal names, so a repeated command continues its job.
        """
        parts = [self.digest.partition(":")[2][:SHOWN_DIGITS]] if self.digest else []
        parts += self.statuses if self.statuses != USUAL else ()
        parts += [f"from-{self.window.from_ms}"] if self.window.from_ms is not None else []
        parts += [f"to-{self.window.to_ms}"] if self.window.to_ms is not None else []
        return "-".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Return the selection as a JSON object."""
        fields = asdict(self)
        window = fields.pop("window")
        return {**fields, "statuses": list(self.statuses), "from_ms": window[0], "to_ms": window[1]}
