"""A partition that a newer revision has scored waits for a limited time."""

import logging
import math

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge

from model_registry.channels.channel import Resolution
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.worker.version_fence import POLL_SECONDS, WAIT_SECONDS, VersionFence
from tests.unit.scorer.consumer.group import TOPIC, Group


class Fenced:
    """A fence in front of two partitions: revision 3 has scored the first, revision 5 the second, and `further` ones.

    The scorer serves revision 4 of the history `served`; the partitions were scored in the history `scored`.
    """

    def __init__(self, further: int = 0, *, scored: str = "", served: str = "", trusted: float = math.inf) -> None:
        self.now = 100.0
        self.polls = 0
        self.group = Group()
        older = OffsetMetadata(revision=3, history=scored)
        self.newer = OffsetMetadata(revision=5, history=scored)
        self.group.committed |= {(TOPIC, 0): (5, older), (TOPIC, 1): (5, self.newer)}
        self.group.committed |= {(TOPIC, number): (5, self.newer) for number in range(2, 2 + further)}
        self.group.assign(*range(2 + further))
        self._registry = CollectorRegistry()
        timeouts = Counter("timeouts", "Timeouts.", registry=self._registry)
        younger = Gauge("younger", "The channel is younger.", registry=self._registry)
        self._fence = VersionFence(self.group.intake, self._poll, timeouts, younger, lambda: self.now)
        self._served = Resolution("d", "1", 4, history=served)
        self._fence.admit(self._served, trusted)

    def _poll(self) -> None:
        self.polls += 1

    def timeouts(self) -> float | None:
        """Return the number of partitions whose wait timed out."""
        return self._registry.get_sample_value("timeouts_total")

    def younger(self) -> float | None:
        """Return whether the channel is reported as younger than its partitions."""
        return self._registry.get_sample_value("younger")

    def paused_after(self, seconds: float, revision: int = 4, trusted: float = math.inf, polled: float = math.inf) -> set[int]:
        """Return the paused partitions after this time if this revision is served."""
        self.now += seconds
        self._fence.check(revision, trusted, polled)
        return self.group.paused()

    def take_over(self, partition: int, polled: float) -> set[int]:
        """Assign a partition that revision 5 has scored, and return the paused partitions."""
        self.group.committed[TOPIC, partition] = 5, self.newer
        self.group.assign(partition)
        self._fence.admit(self._served, polled=polled)
        return self.group.paused()


def test_a_partition_ahead_waits_until_its_revision_is_served() -> None:
    fenced = Fenced()
    assert fenced.paused_after(0.0) == {1}
    assert fenced.paused_after(1.0) == {1}
    assert fenced.paused_after(1.0, revision=5) == set()
    assert fenced.group.intake.partitions.arrivals() == set()
    assert fenced.timeouts() == 0


def test_the_registry_is_polled_during_the_wait() -> None:
    fenced = Fenced()
    for _ in range(4):
        fenced.paused_after(POLL_SECONDS / 2)
    assert fenced.polls == 2


def test_after_a_timeout_the_partition_is_read_and_counted() -> None:
    fenced = Fenced()
    assert fenced.paused_after(WAIT_SECONDS - 0.1) == {1}
    assert fenced.paused_after(0.2) == set()
    assert fenced.timeouts() == 1


def test_a_revoked_partition_does_not_wait() -> None:
    fenced = Fenced()
    fenced.group.revoke(1)
    assert fenced.paused_after(WAIT_SECONDS + 1) == set()
    assert (fenced.polls, fenced.timeouts()) == (0, 0)


def test_a_partition_at_a_revision_that_was_never_accepted_waits_longer_and_is_counted_again() -> None:
    fenced = Fenced()
    for count in (1, 2):
        assert fenced.paused_after(WAIT_SECONDS + 0.1, trusted=4) == {1}
        assert fenced.timeouts() == count
    assert fenced.paused_after(WAIT_SECONDS + 0.1, trusted=5) == set(), "the revision was accepted and then refused here"
    assert fenced.timeouts() == 3


def test_log_lines_name_a_thousand_partitions_in_ranges(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    fenced = Fenced(further=999)
    fenced.paused_after(WAIT_SECONDS, trusted=4)
    fenced.paused_after(WAIT_SECONDS)
    assert caplog.messages == [
        "waiting for a newer revision of the channel than 4: a newer revision has already scored events of flights[1-1000]",
        "the newer revision was not served within 30 s, and this scorer has not accepted its channel move; "
        "these partitions still wait: flights[1-1000]",
        "the newer revision was not served within 30 s; scoring with revision 4: flights[1-1000]",
    ]


def test_a_partition_of_another_history_of_the_channel_does_not_wait_and_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fenced = Fenced(scored="a" * 16, served="b" * 16)
    assert fenced.paused_after(0.0) == set()
    assert (fenced.polls, fenced.timeouts(), fenced.younger()) == (0, 0, 1)
    (message,) = caplog.messages
    assert "restored and is at revision 4, and revision 5 has scored events of flights[1]; scoring continues" in message
    fenced.paused_after(0.0, revision=5)
    assert fenced.younger() == 0, "later revisions are higher than all revisions of the earlier history"


@pytest.mark.parametrize(("scored", "served"), [("a" * 16, "a" * 16), ("", "b" * 16), ("a" * 16, "")])
def test_a_partition_of_the_same_or_an_unknown_history_waits(scored: str, served: str) -> None:
    fenced = Fenced(scored=scored, served=served)
    assert (fenced.paused_after(0.0), fenced.younger()) == ({1}, 0)


def test_another_history_does_not_admit_a_revision_that_was_never_accepted() -> None:
    fenced = Fenced(scored="a" * 16, served="b" * 16, trusted=4)
    assert (fenced.paused_after(0.0, trusted=4), fenced.younger()) == ({1}, 0)


def test_partitions_wait_once_for_a_revision_that_the_registry_does_not_have() -> None:
    fenced = Fenced()
    fenced.paused_after(WAIT_SECONDS, polled=4)
    assert fenced.younger() == 1
    assert fenced.take_over(2, polled=4) == set()
    assert (fenced.timeouts(), fenced.younger()) == (1, 1)
    assert fenced.take_over(3, polled=5) == {3}, "the registry has the revision now"


def test_partitions_wait_each_time_while_the_registry_is_unreachable() -> None:
    fenced = Fenced()
    fenced.paused_after(WAIT_SECONDS)
    assert fenced.take_over(2, polled=4) == {2}
