"""What a loop works with, handed in as one value."""

from collections.abc import Callable
from dataclasses import dataclass

from publisher.transactions.protocol import Session
from scorer.consumer.consumer import EventConsumer
from scorer.crash_isolation.quarantine import Quarantine
from scorer.models.version_manager import VersionManager
from scorer.observability.liveness import WorkerProgress
from scorer.observability.metrics import Metrics
from scorer.observability.traces import Traces
from scorer.settings import Settings
from scorer.worker.encode import Target
from scorer.worker.score_batch import BatchScorer


def not_known() -> None:
    """The topics of answers are not looked at again."""


@dataclass(frozen=True, slots=True)
class Collaborators:
    """`targets()` returns the output and the dead-letter topic as they are now; None where that is not known."""

    settings: Settings
    intake: EventConsumer
    session: Session
    versions: VersionManager
    scoring: BatchScorer
    quarantine: Quarantine
    metrics: Metrics
    progress: WorkerProgress
    traces: Traces
    targets: Callable[[], tuple[Target, Target] | None] = not_known
