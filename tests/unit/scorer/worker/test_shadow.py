"""The records of a shadow for a batch, through fakes: each sampled event is scored by the version that does not answer it."""

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.runtime.context import Clock, Context
from publisher.runtime.dependency_wait import MODEL_SERVERS, DependencyUnavailable
from scorer.backends.base import InferenceFailed, ModelBroken
from scorer.crash_isolation.quarantine import Quarantine
from scorer.models.servable import CanaryArm, Servable
from scorer.models.traffic_split import TrafficSplit
from scorer.settings.shadow import ShadowSettings
from scorer.worker.canary_routing import Arms
from scorer.worker.encode import TargetTopic
from scorer.worker.score_batch import ScoredBatch
from scorer.worker.shadow import ShadowScorer
from scorer.worker.shadow_sampling import ShadowSampler
from tests.unit.scorer.worker.test_canary_scoring import Version, values_of
from tests.unit.scorer.worker.test_score_batch import RAISED, STAGES, batch, settings

DIGEST = "sha256:" + "ab" * 32


class Shadow(Version):
    """A version whose records name its role, the arm of the event, and the reason for a missing score."""

    arm = ""

    def as_shadow(self, arm: str, reason: str | None = None) -> "Shadow":
        shadow_version = Shadow(self.role, self.errors, self.nan)
        shadow_version.arm, shadow_version.fallback_reason, shadow_version.broken = arm, reason or "", self.broken
        return shadow_version

    def named(self, version: str, digest: str) -> "Shadow":
        return Shadow(f"{version}@{digest}", self.errors)

    def encode(self, _ids: Any, scores: list[bytes], *_: Any) -> list[bytes]:
        self._pass("encode", scores)
        prefix = f"{self.role} in {self.arm}:{self.fallback_reason}:".encode()
        return [prefix + score for score in scores]


def scored(
    values: Sequence[bytes],
    rows: Sequence[tuple[bool, bool]],
    champion: Version,
    candidate: Version | None,
    reason: str = "",
    headers: Any = None,
) -> ScoredBatch:
    """Score a batch. Each row states whether the event is sampled, and whether it is the canary's."""
    scoring = ShadowScorer(settings(), TargetTopic("shadow", 1, 1_000_000), TargetTopic("dead", 1, 1_000_000))
    sampled, canary = (np.array([row[at] for row in rows], bool) for at in (0, 1))
    arms = Arms(canary, cast(Servable, candidate), reason, sampled, ("2.0.0", "sha256:c"))
    return scoring.score(batch(values, headers), cast(Servable, champion), Context(Clock(lambda: 10_000)), arms=arms)


@given(st.lists(st.tuples(st.booleans(), st.booleans(), *[st.none() | st.sampled_from(STAGES[:2])] * 2), max_size=19))
def test_each_sampled_event_has_one_record_by_the_version_that_does_not_answer(
    rows: list[tuple[bool, bool, str | None, str | None]],
) -> None:
    """Each row states whether the event is sampled and the canary's, and the stages at which candidate and champion fail."""
    values = values_of(len(rows))
    candidate_errors = {value: (at, RAISED[at]("no")) for value, (_, _, at, _) in zip(values, rows, strict=True) if at}
    champion_errors = {value: (at, RAISED[at]("no")) for value, (_, _, _, at) in zip(values, rows, strict=True) if at}
    result = scored(
        values, [row[:2] for row in rows], Shadow("champion", champion_errors), Shadow("candidate", candidate_errors)
    )
    for value, slot, (sampled, in_canary, candidate_at, champion_at) in zip(values, result.slots, rows, strict=True):
        assert (slot is not None) == sampled
        if slot is None:
            continue
        recorder = b"champion in canary:" if in_canary else b"candidate in champion:"
        at = champion_at if in_canary else candidate_at
        suffix = {None: b":" + value, "decode": b"internal-error:null", "infer": b"inference-failed:null"}[at]
        assert slot[:2] == ("shadow", recorder + suffix)
    assert result.reasons == Counter(), "no dead letters"
    assert result.outcomes["scored"] + result.outcomes["dead_lettered"] == sum(row[0] for row in rows)


def test_the_record_has_the_reason_why_no_version_was_run() -> None:
    champion, rows = Shadow("champion", {}), [(True, False), (True, True), (False, True)]
    refused = scored(values_of(3), rows, champion, None, "refused")
    assert [record[1] for record in refused.records] == [b"2.0.0@sha256:c in champion:refused:null", b"champion in canary::1"]
    unavailable = DependencyUnavailable(MODEL_SERVERS, "no server answers", "start them")
    candidate = Shadow("candidate", dict.fromkeys(values_of(3), ("infer", unavailable)), nan=[b"0"])
    assert scored(values_of(3), rows, champion, candidate).records[0][1] == b"candidate in champion:away:null"
    nan = scored(values_of(1), rows[:1], champion, Shadow("candidate", {}, nan=[b"0"]))
    assert nan.records[0][1] == b"candidate in champion:score-not-finite:null"


def test_a_broken_model_writes_no_failures() -> None:
    values, rows = values_of(3), [(True, False)] * 3
    candidate = Shadow("candidate", dict.fromkeys(values, ("infer", InferenceFailed("no"))))
    assert {record[1] for record in scored(values, rows, Shadow("champion", {}), candidate).records} == {
        b"candidate in champion:inference-failed:null"
    }
    candidate.broken = True
    with pytest.raises(ModelBroken):
        scored(values, rows, Shadow("champion", {}), candidate)


def test_an_event_that_kills_its_process_is_recorded_for_the_version_that_scores_it() -> None:
    scoring = ShadowScorer(settings(), TargetTopic("shadow", 1, 1_000_000), TargetTopic("dead", 1, 1_000_000))
    champion, candidate = cast(Servable, Shadow("champion", {})), cast(Servable, Shadow("candidate", {}))
    for in_canary, recorder in ((False, b"candidate in champion"), (True, b"champion in canary")):
        arms = Arms(np.array([in_canary]), candidate, "", np.array([True]))
        result = scoring.give_up(batch(values_of(1)), champion, Context(Clock(lambda: 1)), "died", arms)
        assert [record[1] for record in result.records] == [recorder + b":crashes-scorer:null"]
    not_sampled = Arms(np.array([False]), candidate, "", np.array([False]))
    assert scoring.give_up(batch(values_of(1)), champion, Context(Clock(lambda: 1)), "died", not_sampled).records == []


def test_events_past_their_deadline_are_scored() -> None:
    late = [[("deadline", b"5")], [("deadline", b"soon")]]
    result = scored(values_of(2), [(True, False)] * 2, Shadow("champion", {}), Shadow("candidate", {}), headers=late)
    assert [record[1] for record in result.records] == [b"candidate in champion::0", b"candidate in champion:bad-deadline:null"]


def quarantine(lethal: str = "") -> Quarantine:
    return cast(Quarantine, SimpleNamespace(refusal_reason=lambda candidate: candidate == lethal))


@pytest.mark.parametrize("percent", [0, 50])
def test_sampling_is_that_of_the_share_and_the_arms_are_the_canarys(percent: int) -> None:
    events = batch(values_of(2_000))
    servable = SimpleNamespace(resolution=SimpleNamespace(identity="it@3"))
    candidate = CanaryArm(DIGEST, percent, TrafficSplit.of(DIGEST, percent), cast(Servable, servable))
    sampling = ShadowSampler(quarantine(), ShadowSettings(share=30))
    arms = sampling.arms(events, candidate)
    assert arms is not None
    assert arms.sampled is not None
    assert (arms.sampled == TrafficSplit.sample(DIGEST, 30).canary(events)).all()
    assert (arms.canary == TrafficSplit.of(DIGEST, percent).canary(events)).all()
    assert (arms.sampled & arms.canary).mean() == pytest.approx(0.3 * percent / 100, abs=0.03), "the seeds differ"
    assert (arms.candidate, arms.reason) == (candidate.servable, "")
    assert sampling.arms(events, None) is None
    refused = sampling.arms(events, CanaryArm(DIGEST, percent, candidate.split, None, "2.0.0"))
    assert refused is not None
    assert (refused.candidate, refused.reason, refused.absent) == (None, "refused", ("2.0.0", DIGEST))
    lethal = ShadowSampler(quarantine("it@3"), ShadowSettings()).arms(events, candidate)
    assert lethal is not None
    assert (lethal.candidate, lethal.reason) == (None, "refused")


def test_partitions_that_exceed_the_lag_limit_are_too_late() -> None:
    sampling = ShadowSampler(quarantine(), ShadowSettings(max_lag_seconds=5))
    assert sampling.too_late({("in", 0): 5.0, ("in", 1): 5.1, ("in", 2): 0.0}) == [("in", 1)]
