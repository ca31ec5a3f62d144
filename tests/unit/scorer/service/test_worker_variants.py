"""The differences between a worker of the scorers and a worker of their shadow."""

from typing import cast
from unittest.mock import create_autospec

from model_registry.channels import roles
from scorer.crash_isolation.quarantine import Quarantine
from scorer.service import worker_variants
from scorer.service.preflight import StartCheck
from scorer.service.worker_variants import SHADOW_NICENESS
from scorer.settings import Settings
from scorer.settings.shadow_worker import ShadowWorkerSettings
from scorer.worker.canary_routing import ArmAssigner
from scorer.worker.encode import TargetTopic
from scorer.worker.score_batch import BatchScorer
from scorer.worker.shadow import ShadowScorer
from scorer.worker.shadow_sampling import ShadowSampler
from tests.unit.scorer.minimal import minimal

START = StartCheck(TargetTopic("out", 1, 1_000_000), TargetTopic("dead", 1, 1_000_000))


def classes_of(settings: Settings) -> list[type]:
    quarantine = cast(Quarantine, create_autospec(Quarantine, instance=True))
    return [
        type(worker_variants.batch_scorer(settings, START)),
        type(worker_variants.arm_assigner(settings, quarantine)),
    ]


def test_a_scorer_routes_events_to_the_canary_at_normal_priority() -> None:
    settings = minimal()
    assert classes_of(settings) == [BatchScorer, ArmAssigner]
    assert worker_variants.candidate_selector(settings) is roles.find_canary
    assert worker_variants.niceness(settings) == 0


def test_a_shadow_samples_events_for_any_candidate_at_low_priority() -> None:
    settings = ShadowWorkerSettings.from_scorer(minimal())
    assert classes_of(settings) == [ShadowScorer, ShadowSampler]
    assert worker_variants.candidate_selector(settings) is roles.find_candidate
    assert worker_variants.niceness(settings) == SHADOW_NICENESS
