"""What a loop works with, handed in as one value."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from publisher.session.protocol import Session
from scorer.crashes.quarantine import Quarantine
from scorer.intake.consumer import Intake
from scorer.loop.score_records import Target
from scorer.loop.scoring import Scoring
from scorer.observe.metrics import Metrics
from scorer.observe.progress import Progress
from scorer.observe.traces import Traces
from scorer.servables.manager import VersionManager
from scorer.settings import Settings


def now_ms() -> int:
    """The wall clock in Unix ms."""
    return time.time_ns() // 1_000_000


def not_known() -> None:
    """The topics of answers are not looked at again."""


@dataclass(frozen=True, slots=True)
class Collaborators:
    """`targets()` returns the output and the dead-letter topic as they are now; None where that is not known."""

    settings: Settings
    intake: Intake
    session: Session
    versions: VersionManager
    scoring: Scoring
    quarantine: Quarantine
    metrics: Metrics
    progress: Progress
    traces: Traces
    targets: Callable[[], tuple[Target, Target] | None] = not_known
