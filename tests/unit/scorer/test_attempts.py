"""Events that kill: whatever the order of deaths and owners, each is found, and nobody else is blamed."""

import random
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorer.attempts import ALONE_FROM, DEAD_FROM, Arrival, Suspicion
from scorer.marks import Mark

BATCH = 16


@pytest.mark.parametrize(
    ("attempts", "alone", "crashed", "waiting", "expected"),
    [
        (0, False, False, 5, 0),
        (0, False, True, 5, 1),
        (1, False, True, 5, 2),
        (2, False, True, 5, 2),
        (3, False, True, 5, 3),
        (4, False, False, 5, 4),
        (1, False, False, 5, 1),
        (2, True, True, 5, 3),
        (3, True, True, 5, 4),
        (3, True, False, 5, 3),
        (3, True, True, 0, 0),
        (0, False, True, 0, 0),
    ],
)
def test_what_a_takeover_counts(attempts: int, alone: bool, crashed: bool, waiting: int, expected: int) -> None:
    assert Arrival.after(attempts, alone=alone, crashed=crashed, waiting=waiting).attempts == expected


@given(attempts=st.integers(0, 6), waiting=st.integers(0, 100))
def test_only_what_could_have_been_in_the_batch_is_examined(attempts: int, waiting: int) -> None:
    suspicion = Suspicion.of(Arrival(attempts, waiting), BATCH)
    assert (suspicion is None) == (attempts < ALONE_FROM or waiting == 0)
    if suspicion:
        assert suspicion.left == min(waiting, BATCH)
        assert suspicion.guilty == (attempts >= DEAD_FROM)


@pytest.mark.parametrize("announced", [False, True])
def test_an_examination_goes_on_until_the_last_event(announced: bool) -> None:
    suspicion = Suspicion.of(Arrival(ALONE_FROM + 1, 3), BATCH)
    assert suspicion is not None
    assert not suspicion.announced
    after = []
    while suspicion.left:
        after.append(suspicion.after_progress)
        suspicion.answered(announced=announced)
        assert (suspicion.attempts, suspicion.announced) == (ALONE_FROM, announced)
        assert not suspicion.guilty
    assert after == [ALONE_FROM, ALONE_FROM, 0]


def test_marks_keep_the_attempts() -> None:
    mark = Mark("app.a", 7, "1.0.0", "sha256:x", 3, alone=True)
    assert Mark.decode(mark.encode()) == mark
    assert Mark.decode('{"owner":"app.a","revision":7}') == Mark("app.a", 7)
    assert Mark.decode("somebody else's") == Mark()


@dataclass
class Log:
    """A partition as the broker has it: events, the committed offset with its attempts, and what became of each event."""

    guilty: frozenset[int]
    count: int
    offset: int = 0
    attempts: int = 0
    alone: bool = False
    died: bool = True
    dead: int = 0
    scored: int = 0

    def commit(self, upto: int, attempts: int = 0, *, alone: bool = False, given_up: bool = False) -> None:
        assert upto > self.offset
        for event in range(self.offset, upto):
            assert given_up == (event in self.guilty), f"event {event} ended in the wrong place"
        self.dead += (upto - self.offset) * given_up
        self.scored += (upto - self.offset) * (not given_up)
        self.offset, self.attempts, self.alone = upto, attempts, alone


def live(log: Log, chance: random.Random, killed: float, ousted: float) -> bool:
    """One process, from its assignment to its end; False where it died, or where it lives on and the partition is another's.

    `killed`: how likely a kill is before each batch; `ousted`: how likely it is that a commit is refused as another has it.
    """
    arrival = Arrival.after(log.attempts, alone=log.alone, crashed=log.died, waiting=log.count - log.offset)
    log.attempts, log.alone, log.died = arrival.attempts, False, True
    suspicion = Suspicion.of(arrival, BATCH)
    while log.offset < log.count:
        if chance.random() < killed:
            return False
        if suspicion is None or suspicion.left == 0:
            upto = min(log.count, log.offset + chance.randint(1, BATCH))
            if log.guilty & set(range(log.offset, upto)):
                return False
            log.commit(upto)
            continue
        ahead = suspicion.left > 1 and chance.random() < 0.5
        if suspicion.guilty:
            log.commit(log.offset + 1, suspicion.after_progress, alone=ahead, given_up=True)
        else:
            if not suspicion.announced:
                log.alone = suspicion.announced = True
            if log.offset in log.guilty:
                return False
            if chance.random() < ousted:
                log.died = False
                return False
            log.commit(log.offset + 1, suspicion.after_progress, alone=ahead)
        suspicion.answered(announced=ahead)
    return True


@settings(max_examples=300)
@given(
    guilty=st.frozensets(st.integers(0, 59), max_size=6),
    seed=st.integers(0, 2**32),
    killed=st.sampled_from([0.0, 0.05, 0.3]),
    ousted=st.sampled_from([0.0, 0.5]),
)
def test_every_event_ends_where_it_should_and_the_partition_goes_on(
    guilty: frozenset[int], seed: int, killed: float, ousted: float
) -> None:
    log, chance, deaths = Log(guilty, 60), random.Random(seed), Counter[int]()
    while not live(log, chance, killed, ousted):
        deaths[log.offset] += 1
        assert deaths.total() < 400, "the partition stands still"
    assert (log.scored, log.dead) == (60 - len(guilty), len(guilty))
    if not killed and not ousted:
        assert max(deaths.values(), default=0) <= DEAD_FROM, "as many deaths without progress as it takes to be found"
