"""A batch of two versions through fakes: the champion answers the failures of the candidate, in order and without a loss."""

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.errors import Aborted
from publisher.runtime.context import Clock, Context
from publisher.runtime.dependency_wait import MODEL, MODEL_SERVERS, DependencyUnavailable
from scorer.backends.base import InferenceFailed
from scorer.models.servable import Servable
from scorer.worker.canary_routing import Arms
from scorer.worker.canary_scoring import HOPELESS
from scorer.worker.encode import TargetTopic
from scorer.worker.score_batch import BatchScorer, ScoredBatch
from tests.unit.scorer.worker.test_score_batch import RAISED, STAGES, Fake, batch, settings


class Version(Fake):
    """A fake whose records name its role and the fallback reason: `role:fallback:value`."""

    plain = True

    def __init__(self, role: str, errors: dict[bytes, tuple[str, Exception]], nan: Sequence[bytes] = ()) -> None:
        super().__init__(errors)
        self.role = role
        self.fallback_reason = ""
        self.nan = nan
        self.runs = 0
        self.label = f"model:{role}@x"

    def in_place_of_canary(self, reason: str) -> "Version":
        fallback_version = Version(self.role, self.errors)
        fallback_version.fallback_reason = reason
        return fallback_version

    def score(self, tensors: dict[str, Any], alive: Any) -> Any:
        self.runs += 1
        result = super().score(tensors, alive)
        values = tensors["x"][:, 0].tolist()
        finite = np.array([value not in self.nan for value in values])
        return SimpleNamespace(encoded=result.encoded, decisions=result.decisions, finite=lambda: finite)

    def encode(self, ids: Any, scores: list[bytes], *arguments: Any) -> list[bytes]:
        return [
            b"%s:%s:%s" % (self.role.encode(), self.fallback_reason.encode(), value)
            for value in super().encode(ids, scores, *arguments)
        ]


def scored(values: Sequence[bytes], canary: Sequence[bool], champion: Version, candidate: Version | None) -> ScoredBatch:
    scoring = BatchScorer(settings(), TargetTopic("out", 1, 1_000_000), TargetTopic("dead", 1, 1_000_000))
    arms = Arms(np.array(canary, bool), cast(Servable, candidate), "" if candidate else "breaker")
    return scoring.score(batch(values), cast(Servable, champion), Context(Clock(lambda: 1)), arms=arms)


def values_of(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@given(
    st.lists(st.tuples(st.booleans(), st.none() | st.sampled_from(STAGES), st.none() | st.sampled_from(STAGES)), max_size=70)
)
def test_the_champion_answers_every_failure_of_the_candidate(rows: list[tuple[bool, str | None, str | None]]) -> None:
    """Each row states whether the event is the canary's, and the stages at which the candidate and the champion fail."""
    values = values_of(len(rows))
    candidate_stages = {value: at for value, (_, at, _) in zip(values, rows, strict=True) if at}
    champion_stages = {value: at for value, (_, _, at) in zip(values, rows, strict=True) if at}
    errors = [{value: (at, RAISED[at]("no")) for value, at in stages.items()} for stages in (candidate_stages, champion_stages)]
    champion, candidate = Version("champion", errors[1]), Version("canary", errors[0])
    result = scored(values, [row[0] for row in rows], champion, candidate)
    records = [record for record in result.slots if record is not None]
    assert len(records) == len(rows)
    failed, hopeless = 0, sum(in_canary and at is not None for in_canary, at, _ in rows) >= HOPELESS
    for value, record, (in_canary, at, champion_stage) in zip(values, records, rows, strict=True):
        topic, text, *_, headers = record
        by_candidate = in_canary and text == b"canary::" + value
        assert by_candidate <= (at is None)
        assert by_candidate or not in_canary or at is not None or hopeless
        if not by_candidate:
            failed += in_canary and champion_stage is None
            assert topic == ("out" if champion_stage is None else "dead")
            assert champion_stage is not None or (
                (text or b"").startswith(b"champion:") and (text or b"").endswith(b":" + value)
            )
        if topic == "dead":
            assert dict(headers or [])["dead.arm"] == (b"canary" if in_canary else b"champion")
    assert (result.requested, result.failed) == (sum(row[0] for row in rows), failed)
    assert result.outcomes.total() == len(rows)


def test_a_candidate_that_always_fails_has_a_few_runs_and_loses_no_event() -> None:
    values, count = values_of(1_000), 400
    candidate = Version("canary", {value: ("infer", InferenceFailed("no")) for value in values})
    result = scored(values, [row < count for row in range(1_000)], Version("champion", {}), candidate)
    assert result.fallbacks == Counter({"inference-failed": count})
    assert (result.requested, result.failed, result.outcomes) == (count, count, Counter(scored=1_000))
    assert candidate.runs < 4 * HOPELESS
    assert [record[1] for record in result.records[:1]] == [b"champion:inference-failed:0"]


def test_the_champion_answers_if_scores_are_not_finite_or_servers_unavailable() -> None:
    values = values_of(4)
    result = scored(values, [True, True, False, True], Version("champion", {}), Version("canary", {}, nan=[b"1"]))
    assert [record[1] for record in result.records] == [
        b"canary::0",
        b"champion:score-not-finite:1",
        b"champion::2",
        b"canary::3",
    ]
    unavailable = DependencyUnavailable(MODEL_SERVERS, "no server answers", "start them")
    candidate = Version("canary", dict.fromkeys(values, ("infer", unavailable)))
    result = scored(values, [True, True, False, True], Version("champion", {}), candidate)
    assert (result.fallbacks, result.requested, result.failed) == (Counter(away=3), 3, 3)
    loading = Version("canary", dict.fromkeys(values, ("infer", DependencyUnavailable(MODEL, "it is being loaded again"))))
    result = scored(values, [True, True, False, True], Version("champion", {}), loading)
    assert (result.fallbacks, result.requested, result.failed) == (Counter(crash=3), 0, 0), (
        "a death of the process is no failure of the candidate"
    )
    with pytest.raises(DependencyUnavailable):
        scored(values, [True, False, False, False], candidate, Version("canary", {}))
    with pytest.raises(Aborted):
        scored(values, [True] * 4, Version("champion", {}), Version("canary", {b"1": ("infer", Aborted("lost"))}))


def test_a_candidate_behind_an_open_breaker_has_no_failures() -> None:
    result = scored(values_of(2), [True, False], Version("champion", {}), None)
    assert [record[1] for record in result.records] == [b"champion:breaker:0", b"champion::1"]
    assert (result.requested, result.failed, result.fallbacks) == (0, 0, Counter(breaker=1))


def test_events_that_both_versions_refuse_are_dead_letters_and_no_failure_of_the_candidate() -> None:
    errors = {b"1": ("decode", ValueError("no"))}
    result = scored(values_of(3), [True] * 3, Version("champion", dict(errors)), Version("canary", dict(errors)))
    assert (result.requested, result.failed, +result.reasons) == (3, 0, Counter({"internal-error": 1}))


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=40))
def test_a_fallback_runs_no_model_and_keeps_arms_and_dead_letters(rows: list[tuple[bool, bool]]) -> None:
    """Each row states whether the event is the canary's, and whether it cannot be decoded."""
    values = values_of(len(rows))
    errors = {
        value: ("decode", RAISED["decode"]("no")) for value, (_, is_invalid) in zip(values, rows, strict=True) if is_invalid
    }
    champion, candidate = Version("champion", errors), Version("canary", {})
    model = {"source": "oci:./r", "backend": "open-inference", "fallback": {"score": -1, "decision": "review"}}
    scoring = BatchScorer(settings(model=model), TargetTopic("out", 1, 1_000_000), TargetTopic("dead", 1, 1_000_000))
    arms = Arms(np.array([in_canary for in_canary, _ in rows], bool), cast(Servable, candidate))
    result = scoring.fall_back(batch(values), cast(Servable, champion), Context(Clock(lambda: 1)), arms=arms)
    texts = [(record[0], record[1]) for record in result.slots if record is not None]
    assert texts == [
        ("dead", value) if is_invalid else ("out", b"champion:away:-1" if in_canary else b"champion::-1")
        for value, (in_canary, is_invalid) in zip(values, rows, strict=True)
    ]
    assert (champion.runs, candidate.runs, result.requested, result.failed) == (0, 0, 0, 0)
    assert result.outcomes == Counter(
        fallback=sum(not is_invalid for _, is_invalid in rows), dead=sum(is_invalid for _, is_invalid in rows)
    )
