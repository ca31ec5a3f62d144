"""Which score records are to be corrected: by the digest that they record, by status, by when they were scored. Pure."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from publisher.runtime.time_range import ALWAYS, TimeRange
from scorer.scores.decode_record import ScoreRecord, decode_record

SHOWN_DIGITS = 12  # of a digest in a job's name
USUAL = ("fallback", "scored")
"""Statuses that are corrected where none are asked for: an expired answer has no score that could be wrong."""

AsJson = Callable[[bytes], bytes]
"""Turns a score record of any format into JSON; raises ValueError for what is no record."""


def read(value: bytes | None, as_json: AsJson) -> ScoreRecord | None:
    """The score record that the value is; None for what is none."""
    try:
        return decode_record(as_json(value or b""))
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class ScoreSelection:
    """Score records of this digest (of any: None) and these statuses, whose `scored_ms` lies in the window."""

    digest: str | None = None
    statuses: tuple[str, ...] = USUAL
    window: TimeRange = ALWAYS

    def takes(self, record: ScoreRecord) -> bool:
        wanted = (self.digest is None or record.digest == self.digest) and record.status in self.statuses
        return wanted and self.window.holds(record.scored_ms)

    def name(self) -> str:
        """A job's name for people who give none: the same selection has the same name, so the same command goes on."""
        parts = [self.digest.partition(":")[2][:SHOWN_DIGITS]] if self.digest else []
        parts += self.statuses if self.statuses != USUAL else ()
        parts += [f"from-{self.window.from_ms}"] if self.window.from_ms is not None else []
        parts += [f"to-{self.window.to_ms}"] if self.window.to_ms is not None else []
        return "-".join(parts)

    def to_dict(self) -> dict[str, Any]:
        said = asdict(self)
        window = said.pop("window")
        return {**said, "statuses": list(self.statuses), "from_ms": window[0], "to_ms": window[1]}
