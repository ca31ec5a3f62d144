"""One worker of `scorer run --shadow`: the same service with other parts, at low priority."""

import os
from collections.abc import Callable
from functools import partial

from model_registry.channels import roles
from publisher.kafka.partitions import Partition
from scorer.consumer.start_offsets import AnswerStartOffsets, StartPositions
from scorer.crash_isolation.in_flight_journal import InFlightJournal
from scorer.service import worker_main
from scorer.service.worker_main import Parts
from scorer.settings import Settings
from scorer.worker.shadow import ShadowScorer
from scorer.worker.shadow_sampling import ShadowSampler

NICENESS = 10


class ShadowBeginnings(StartPositions):
    """Start positions of a group whose events need not be complete: its positions alone record its progress."""

    def _read_swaps(self) -> dict[Partition, set[str]]:
        return {}

    def _answers_from(self) -> AnswerStartOffsets:
        return AnswerStartOffsets([], [])


def run(
    settings: Settings,
    on_serving: Callable[[str], None] = lambda _: None,
    in_hand: InFlightJournal | None = None,
    workers: int = 1,
) -> None:
    """Run like `worker_main.run`."""
    os.nice(NICENESS)
    parts = Parts(
        make_scoring=ShadowScorer,
        make_assigning=partial(ShadowSampler, settings=settings.shadow),
        candidate=roles.find_candidate,
        make_beginnings=ShadowBeginnings,
    )
    worker_main.run(settings, parts, on_serving, in_hand, workers)
