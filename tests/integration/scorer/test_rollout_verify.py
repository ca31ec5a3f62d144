"""Decide from a real broker, write more labels, and verify: each rule kind, with answers and labels in random portions."""

import contextlib
import random
import time
from typing import Any

import pytest

from publisher.errors import Fatal
from scorer.rollout.controller import log_records
from scorer.rollout.controller.analysis_step import AnalysisSnapshot, StepAnalyzer
from scorer.rollout.controller.log_records import EntryKind, LogEntry, LoggedVersion, Outcome
from scorer.rollout.controller.reproduce_verdict import verify
from scorer.rollout.controller.rollout_state import Rollout, RolloutLog
from scorer.settings import load
from tests.integration.scorer.rig import STEP_SECONDS, MakeRig
from tests.integration.scorer.test_judge import CHAMPION, FAILING, NEW, OLD, PARTITIONS, SHADOW, Bus

STEPS = [{"shadow": "100%"}, {"promote": True}]
CLASSES = ["on time", "late"]
NAME = "ro-1"


class Answered:
    """Write answers and labels to a bus at random; the candidate is worse by the rule `kind`."""

    def __init__(self, bus: Bus, kind: str, seed: int) -> None:
        self._bus, self._kind, self._chance = bus, kind, random.Random(seed)
        self._scores: list[float] = []

    @property
    def count(self) -> int:
        return len(self._scores)

    def answer(self, count: int) -> None:
        for n in range(self.count, self.count + count):
            score = self._chance.random()
            self._scores.append(score)
            self._bus.record(self._bus.rig.scores_topic, CHAMPION, n, score)
            if self._kind == "errors" and self._chance.random() < 0.3:
                self._bus.record(f"{self._bus.rig.scores_topic}.shadow", FAILING, n, None)
            else:
                self._bus.record(f"{self._bus.rig.scores_topic}.shadow", SHADOW, n, self._candidate(score))
        self._bus.flush()

    def _candidate(self, score: float) -> float:
        if self._kind == "psi":
            return score / 2
        return 1 - score if self._kind in ("flips", "brier") and self._chance.random() < 0.5 else score

    def label(self, count: int) -> None:
        """Write labels of events that were answered, or that come later; some replace others, some withdraw them."""
        for _ in range(count):
            n = self._chance.randrange(self.count + 50)
            late = n < self.count and self._scores[n] >= 0.5
            wrong = self._chance.choice([b"null", b'"other"', b"0" if late else b'"late"'])
            outcome = wrong if self._chance.random() < 0.2 else b'"late"' if late else b"0"
            self._bus.label(b'{"id": "e%d", "outcome": %s}' % (n, outcome))
        self._bus.flush()


def rollout_of(bus: Bus, rules: dict[str, Any]) -> Rollout:
    """Return a rollout whose step is judged from the beginning of the topics on."""
    ledger = RolloutLog()
    plan = {"candidate": "2.0.0", "steps": STEPS, "rules": rules}
    topics = [bus.rig.scores_topic, bus.rig.dead_topic, f"{bus.rig.scores_topic}.shadow"]
    starts = log_records.to_logged({(topic, number): 0 for topic in topics for number in range(PARTITIONS)})
    champion, candidate = LoggedVersion(OLD, "1.0.0"), LoggedVersion(NEW, "2.0.0")
    for entry in (
        LogEntry(NAME, 0, EntryKind.STARTED, 1, "c", plan=plan, champion=champion, candidate=candidate, revision=1),
        LogEntry(NAME, 1, EntryKind.MOVED, 2, "c", 0, revision=2, starts=starts),
    ):
        ledger.apply(f"{NAME}/{entry.seq}".encode(), log_records.encode(entry))
    return ledger.rollouts[NAME]


def looked(judging: StepAnalyzer, rollout: Rollout, pairs: int) -> AnalysisSnapshot:
    """Look until the judge has seen so many pairs."""
    step, deadline = rollout.at(), time.monotonic() + STEP_SECONDS
    assert step is not None
    while time.monotonic() < deadline:
        look = judging.analyze(rollout, step, None, 0.3)
        if look.judgement["rules"][0]["pairs"] >= pairs:
            return look
    raise AssertionError(f"the judge did not see {pairs} pairs: {look.judgement}")


def end(rollout: Rollout, look: AnalysisSnapshot) -> None:
    """Write a decision that is based on an analysis into the log."""
    facts: dict[str, Any] = {"obstacles": list(look.obstacles), "judgement": look.judgement}
    rollout.log.append(LogEntry(NAME, rollout.seq, EntryKind.ENDED, 3, "c", 0, outcome=Outcome.ABORTED, **facts))


@pytest.fixture
def bus(make_rig: MakeRig) -> Bus:
    rig = make_rig()
    rig.configure(labels={"topic": f"{rig.name}.labels", "id": "id", "value": "outcome", "classes": CLASSES})
    for topic in (rig.events_topic, rig.scores_topic, rig.dead_topic, f"{rig.scores_topic}.shadow"):
        rig.make_topic(topic, PARTITIONS)
    rig.make_topic(f"{rig.name}.labels", 2)
    return Bus(rig)


RULES = {
    "errors": ({"errors": 0.01, "flips": 1.0, "psi": 100.0}, "roll back"),
    "flips": ({"errors": 1.0, "flips": 0.01, "psi": 100.0}, "roll back"),
    "psi": ({"errors": 1.0, "flips": 1.0, "psi": 0.1}, "hold"),
    "brier": ({"errors": 1.0, "flips": 1.0, "psi": 100.0, "brier": 0.001}, "roll back"),
}


@pytest.mark.parametrize("kind", RULES)
def test_a_decision_is_verified_although_answers_and_labels_came_since(bus: Bus, kind: str) -> None:
    rules, expected = RULES[kind]
    settings, chance = load(bus.rig.path, []).settings, random.Random(kind)
    answers, rollout = Answered(bus, kind, chance.randrange(1_000)), rollout_of(bus, rules)
    with contextlib.closing(StepAnalyzer(settings, to_end=False)) as judging:
        for _ in range(3):
            answers.answer(chance.randint(300, 900))
            answers.label(chance.randint(300, 900))
            look = looked(judging, rollout, answers.count)
            end(rollout, look)
    assert look.verdict.decision == expected
    assert any(line.startswith(f"{kind}: ") for line in look.verdict.reasons)
    answers.answer(200)
    answers.label(400)
    verifications = [verify(settings, rollout, entry.seq) for entry in rollout.log[-3:]]
    assert [each.differs for each in verifications] == [(), (), ()]
    assert verifications[-1].pairs == answers.count - 200


def test_labels_that_were_removed_are_no_difference_but_an_error(bus: Bus) -> None:
    settings, rollout = load(bus.rig.path, []).settings, rollout_of(bus, RULES["brier"][0])
    answers = Answered(bus, "brier", 1)
    answers.answer(300)
    answers.label(300)
    with contextlib.closing(StepAnalyzer(settings, to_end=False)) as judging:
        look = looked(judging, rollout, 300)
    end(rollout, look)
    bus.rig.delete_records(f"{bus.rig.name}.labels")
    with pytest.raises(Fatal, match="has 0 of the 300 labels that the decision is based on"):
        verify(settings, rollout, 2)


def test_a_decision_of_a_controller_that_began_after_retention_is_verified(bus: Bus) -> None:
    """It is based on the remaining answers, and its entry names them. When these are removed too, that is an error."""
    settings, rollout = load(bus.rig.path, []).settings, rollout_of(bus, RULES["errors"][0])
    answers = Answered(bus, "errors", 2)
    answers.answer(300)
    bus.rig.delete_records(bus.rig.scores_topic)
    answers.answer(300)
    with contextlib.closing(StepAnalyzer(settings, to_end=False)) as judging:
        end(rollout, looked(judging, rollout, 300))
    changed = load(bus.rig.path, ["labels.value=other"]).settings
    assert verify(changed, rollout, 2).differs == ()
    bus.rig.delete_records(bus.rig.scores_topic)
    with pytest.raises(Fatal, match="now starts at 200, and the decision is based on records from 100 on"):
        verify(settings, rollout, 2)
