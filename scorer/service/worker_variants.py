"""The differences between a worker of a scorer and a worker of its shadow. The class of the settings selects the variant.

A shadow scores a sample of a scorer's events a second time, with its own consumer group and output topic.
All other parts of a worker are the same in both variants; see `worker_main.py`.
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
SCHEMA_SECONDS = 5.0  # the longest wait for the schemas of a batch; group heartbeats and revocations are delayed as long


class ShadowStartPositions(StartPositions):
    """Determines the start positions of a shadow only from the committed offsets of its group."""

    # A shadow need not score every event. Therefore it reads no version change records and no offsets of output topics.

    def _read_swaps(self) -> dict[Partition, set[str]]:
        return {}

    def _answers_from(self) -> AnswerStartOffsets:
        return AnswerStartOffsets([], [])


def niceness(settings: Settings) -> int:
    """Return the value to add to the niceness of the process: a shadow has a lower CPU priority than scorers."""
    return SHADOW_NICENESS if isinstance(settings, ShadowWorkerSettings) else 0


def candidate_selector(settings: Settings) -> Callable[[Sequence[Role]], Role | None]:
    """Return the function that selects the candidate, the version that scores beside the champion, from a channel's roles.

    A scorer selects the canary. A shadow selects the canary or the shadow version.
    """
    return roles.find_candidate if isinstance(settings, ShadowWorkerSettings) else roles.find_canary


def batch_scorer(settings: Settings, start: StartCheck) -> BatchScorer:
    """Create the object that turns batches into records. `start` describes the topics to which the records are written."""
    scorer = ShadowScorer if isinstance(settings, ShadowWorkerSettings) else BatchScorer
    return scorer(settings, start.output, start.dead_letter, start.features, look_up_seconds=SCHEMA_SECONDS)


def arm_assigner(settings: Settings, quarantine: Quarantine) -> ArmAssigner:
    """Create the object that assigns the events of a batch to the champion and the candidate."""
    if isinstance(settings, ShadowWorkerSettings):
        return ShadowSampler(quarantine, settings.shadow)
    return ArmAssigner(quarantine)


def start_positions(settings: Settings, context: Context, skipped: SkippedRecords) -> StartPositions:
    """Create the object that determines the start positions of assigned partitions."""
    positions = ShadowStartPositions if isinstance(settings, ShadowWorkerSettings) else StartPositions
    return positions(settings, context, skipped)
