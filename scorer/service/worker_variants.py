"""The differences between a worker of the scorers and a worker of their shadow, chosen by the class of the settings.

Everything else of a worker is the same: see `worker_main.py`.
"""

from collections.abc import Callable, Sequence

from model_registry.channels import roles
from model_registry.channels.roles import Role
from publisher.kafka.partitions import Partition
from publisher.kafka.skipped_records import SkippedRecords
from publisher.runtime.context import Context
from scorer.consumer.start_offsets import AnswerStartOffsets, StartPositions
from scorer.crash_isolation.quarantine import Quarantine
from scorer.service.preflight import StartCheck
from scorer.settings import Settings
from scorer.settings.shadow_worker import ShadowWorkerSettings
from scorer.worker.canary_routing import ArmAssigner
from scorer.worker.score_batch import BatchScorer
from scorer.worker.shadow import ShadowScorer
from scorer.worker.shadow_sampling import ShadowSampler

SHADOW_NICENESS = 10
SCHEMA_SECONDS = 5.0  # the longest wait of a batch for the schemas of its events: heartbeats and revocations wait as long


class ShadowStartPositions(StartPositions):
    """Start positions of a group whose events need not be complete: its positions alone record its progress."""

    def _read_swaps(self) -> dict[Partition, set[str]]:
        return {}

    def _answers_from(self) -> AnswerStartOffsets:
        return AnswerStartOffsets([], [])


def niceness(settings: Settings) -> int:
    """Return the increment of the process's niceness: a shadow leaves the processor to the scorers."""
    return SHADOW_NICENESS if isinstance(settings, ShadowWorkerSettings) else 0


def candidate_selector(settings: Settings) -> Callable[[Sequence[Role]], Role | None]:
    """Return the function that selects the version to score beside the champion from the roles of a channel."""
    return roles.find_candidate if isinstance(settings, ShadowWorkerSettings) else roles.find_canary


def batch_scorer(settings: Settings, start: StartCheck) -> BatchScorer:
    """Return the scorer of batches for the topics that the start check has described."""
    scorer = ShadowScorer if isinstance(settings, ShadowWorkerSettings) else BatchScorer
    return scorer(settings, start.output, start.dead_letter, look_up_seconds=SCHEMA_SECONDS)


def arm_assigner(settings: Settings, quarantine: Quarantine) -> ArmAssigner:
    """Return the assigner of events to the champion and the candidate."""
    if isinstance(settings, ShadowWorkerSettings):
        return ShadowSampler(quarantine, settings.shadow)
    return ArmAssigner(quarantine)


def start_positions(settings: Settings, context: Context, skipped: SkippedRecords) -> StartPositions:
    """Return the start positions of assigned partitions."""
    positions = ShadowStartPositions if isinstance(settings, ShadowWorkerSettings) else StartPositions
    return positions(settings, context, skipped)
