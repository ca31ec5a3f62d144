"""The selection of score records to correct: by digest, status, and scoring time. Pure."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from publisher.runtime.time_range import ALWAYS, TimeRange
from scorer.scores.decode_record import ScoreRecord, decode_record

SHOWN_DIGITS = 12  # of a digest in a job's name
USUAL = ("fallback", "scored")
"""The statuses that are corrected by default: an expired answer has no score."""

AsJson = Callable[[bytes], bytes]
"""Converts a score record of any format to JSON; raises ValueError for other bytes."""


def read(value: bytes | None, as_json: AsJson) -> ScoreRecord | None:
    """Decode a score record; None for a value that is not one."""
    try:
        return decode_record(as_json(value or b""))
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class ScoreSelection:
    """Score records with this digest (None for any) and one of these statuses that were scored in the window."""

    digest: str | None = None
    statuses: tuple[str, ...] = USUAL
    window: TimeRange = ALWAYS

    def takes(self, record: ScoreRecord) -> bool:
        """Return whether a record is selected."""
        wanted = (self.digest is None or record.digest == self.digest) and record.status in self.statuses
        return wanted and self.window.contains(record.scored_ms)

    def name(self) -> str:
        """Return the default name of a job.

        The same selection has the same name, so repeating a command continues its job.
        """
        parts = [self.digest.partition(":")[2][:SHOWN_DIGITS]] if self.digest else []
        parts += self.statuses if self.statuses != USUAL else ()
        parts += [f"from-{self.window.from_ms}"] if self.window.from_ms is not None else []
        parts += [f"to-{self.window.to_ms}"] if self.window.to_ms is not None else []
        return "-".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Return the selection as JSON."""
        fields = asdict(self)
        window = fields.pop("window")
        return {**fields, "statuses": list(self.statuses), "from_ms": window[0], "to_ms": window[1]}
