"""The lease of a model: only one run of a model trains at a time, on any machine and in any folder.

A run is a member of the consumer group `<name>.training.lease` until it ends. The first member holds the lease. A run fails if
another member holds the lease. Kafka removes a member without heartbeats after `kafka.session_timeout_ms`, which also ends the
lease of a killed process.
"""

# Two runs of a model spoil nothing: a promotion expects the champion that its version was compared with. They waste a machine,
# and the slower one is evaluated a second time. Therefore the lease is checked between steps only.

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from model_registry import atomic_files
from publisher.errors import REFUSED, UNREACHABLE, Fatal
from publisher.kafka import acls, clients, connection, error_codes
from publisher.kafka.acls import READ, Right
from publisher.kafka.group_query_program import DescribedMember
from publisher.kafka.groups import ANSWER_SECONDS, GroupMember
from publisher.kafka.isolated_groups import IsolatedGroups
from publisher.kafka.reader import TopicReader
from publisher.runtime.abandonable_call import ABANDON_SECONDS
from scorer.evaluation.join_labels import labels_topic
from scorer.service.replica_claim import FROZEN_SECONDS, ReplicaClaim, expiry_seconds
from scorer.settings import Settings
from training.pipeline.journal import written

MEMBERS = ".lease"
"""The file in the folder of runs that lists the group member ids of this process and of earlier processes.

Only one process at a time has the lock of the folder. The earlier processes are therefore dead, and their ids are ignored.
"""
MAX_MEMBERS = 20
MAX_CHARACTERS = 20_000
POLL_SECONDS = 0.3
QUERY_SECONDS = 1.0


def group_of(settings: Settings) -> str:
    """Return the consumer group whose first member holds the lease."""
    return f"{settings.name}.training.lease"


@contextlib.contextmanager
def held(settings: Settings, folder: Path) -> Iterator[Callable[[], None]]:
    """Hold the lease of the model during the block. Yield a function that checks whether this process still holds it.

    The caller must hold the lock of `folder`, the folder of runs. The function raises Fatal (exit code 3) if another process
    has taken the lease. That happens only after this process was suspended, or could not reach the broker, for longer than
    `kafka.session_timeout_ms`.

    Raises:
        Fatal: Exit code 2 if the topic of labels is missing, 3 if another process holds the lease or the right Read on the
            group is missing, 4 if the broker is unreachable.
    """
    TopicReader(settings.kafka, group_of(settings)).partitions([labels_topic(settings)])
    lease = ModelLease(settings, folder / MEMBERS)
    try:
        lease.acquire()
        yield lease.check
    finally:
        lease.close()


class ModelLease:
    """The lease that this process holds or requests, as a member of the consumer group of the lease.

    A thread owns the Kafka client from the constructor to `close`.

    Args:
        settings: The scorer's settings.
        file: The file that lists the member ids of earlier processes, which are dead. The ids of this process are added to it.
    """

    def __init__(self, settings: Settings, file: Path) -> None:
        self._settings = settings
        self._group = group_of(settings)
        self._file = file
        self._members = _read(file)
        self._claim = ReplicaClaim(expiry_seconds(settings), frozenset(self._members))
        self._groups = IsolatedGroups(settings.kafka, self._group)
        self._watch = clients.ErrorWatch()
        self._consumer: Consumer = clients.consumer(settings.kafka, self._group, self._group, self._watch, _no_commits)
        self._queried_at = 0.0
        self._failure: Fatal | None = None
        self._decided = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()

    def acquire(self) -> None:
        """Wait until this process holds the lease. Raises Fatal if another process holds it, or if no broker answers."""
        limit = 2 * expiry_seconds(self._settings) + ANSWER_SECONDS
        if not self._decided.wait(limit):
            message = f"the broker did not admit this run to the group {self._group} within {limit:.0f} s"
            raise Fatal(message, "see the broker's log, and run again", UNREACHABLE)
        self.check()

    def check(self) -> None:
        """Raise Fatal if another process holds the lease."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Release the lease: leave the group and end the thread."""
        self._closing.set()
        self._thread.join(ABANDON_SECONDS)

    def _run(self) -> None:
        try:
            self._consumer.subscribe([labels_topic(self._settings)], on_assign=_paused)
            while self._failure is None and not self._closing.is_set():
                self._poll()
        except Fatal as failure:
            self._failure = failure
        except KafkaException as error:
            self._failure = Fatal(f"the group {self._group} fails: {error.args[0]}", "run again", UNREACHABLE)
        finally:
            self._decided.set()
            self._consumer.close()

    def _poll(self) -> None:
        began = time.monotonic()
        message = self._consumer.poll(POLL_SECONDS)
        if self._watch.fatal is not None:
            raise connection.refused(self._settings.kafka, self._watch.fatal)
        if message is not None and (error := message.error()) is not None:
            self._check_error(error)
        if time.monotonic() > began + POLL_SECONDS + FROZEN_SECONDS:  # suspended: the group may have removed this member
            self._claim.release()
        member = self._consumer.memberid() or ""
        if member and member not in self._members[-1:]:
            self._members = [*self._members, member][-MAX_MEMBERS:]
            with written(self._file):
                atomic_files.replace(self._file, ["\n".join(self._members).encode()])
        if member and not self._claim.holds(member) and time.monotonic() > self._queried_at + QUERY_SECONDS:
            self._query(member)
            self._queried_at = time.monotonic()

    def _query(self, own: str) -> None:
        try:
            described = self._groups.describe(self._group, ANSWER_SECONDS, rights=False).members
        except KafkaException:
            return  # the coordinator moves, or the broker is unavailable: the next query decides
        members = {member.member_id: member for member in described}
        if self._claim.lost(own, members.keys(), time.monotonic()):
            self._failure = self._refusal(own, members)
        if self._claim.holds(own):
            self._decided.set()

    def _refusal(self, own: str, members: Mapping[str, DescribedMember]) -> Fatal:
        others = [
            str(GroupMember(member.client_id, member.host, member.partitions))
            for member_id, member in sorted(members.items())
            if member_id != own
        ]
        return Fatal(
            f"another run trains the model of {self._settings.name}: {', '.join(others)} in the group {self._group}",
            "wait until that run ends",
            REFUSED,
        )

    def _check_error(self, error: KafkaError) -> None:
        if (kind := error_codes.REFUSED.reason(error)) is not None:
            name = self._group if kind == acls.GROUP else labels_topic(self._settings)
            raise acls.refused(self._settings.kafka, [Right(READ, kind, name)])
        if error.fatal():
            raise Fatal(f"the group {self._group} rejects this run: {error.str()}", "run again", UNREACHABLE)


def _read(file: Path) -> list[str]:
    """Return the member ids of earlier processes, oldest first."""
    try:
        with file.open(encoding="utf-8", errors="replace") as stream:
            return stream.read(MAX_CHARACTERS).splitlines()[-MAX_MEMBERS:]
    except OSError:
        return []


def _paused(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """Accept the assigned partitions and pause them: no record is read."""
    ends = [TopicPartition(partition.topic, partition.partition, OFFSET_END) for partition in partitions]
    consumer.incremental_assign(ends)
    consumer.pause(ends)


def _no_commits(error: KafkaError | None, _: list[TopicPartition]) -> None:
    del error  # this group never commits offsets
