"""Before an id writes again: is all that lay before it decided?

`init_transactions` ends what the id left open, and the broker writes the end into every partition of that transaction. Kafka
4.3 leaves out partitions that have no leader just then (KAFKA-20734), as while the only broker of a cluster comes back, and
forgets them. The next transaction of the same producer would end the forgotten one along with itself: records would become
visible that are written a second time, and committed positions would jump over events that nobody has answered.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from publisher.errors import NotAllowed
from publisher.kafka import clients as kafka
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.error_codes import REFUSED_CODES

log = logging.getLogger(__name__)

ANSWER_SECONDS = 5.0
TOLD_SECONDS = 0.3  # by then the positions of decided transactions are told
NO_PARTITION = 2**31 - 1
LOOK_SECONDS = 0.02  # a transaction of somebody who is well takes about as long
SWEEP_SECONDS = 20.0  # beyond the transaction timeout: how late a broker notices that one is over (every 10 s by default)
SLOWEST_LOOK_SECONDS = 1.0
TELL_SECONDS = 5.0
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
HINT = (
    "this goes on when it ends. Either another program holds transactions open there for so long, or a broker has forgotten to "
    "end one (KAFKA-20734): kafka-transactions.sh --bootstrap-server ... find-hanging tells; see "
    "deploy/runbooks/ScorerOpenTransaction.md"
)
AWAY_HINT = "check the brokers, and that the partitions have leaders"


class OpenTransactions:
    """Those in the topics that are `written`, and in the positions of `group` in the topics `read`, whoever began them: clients
    are not told. An alarm tells of one that is open for longer than the transaction timeout and `sweep_seconds`: by then the
    broker has ended all of ours that it remembers.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        client_id: str,
        written: Iterable[str],
        group: str = "",
        read: Iterable[str] = (),
        *,
        sweep_seconds: float = SWEEP_SECONDS,
    ) -> None:
        self._settings = settings
        self._client_id = client_id
        self._written = tuple(dict.fromkeys(written))
        self._group = group
        self._read = tuple(read) if group else ()
        self._limit = settings.transaction_timeout_ms / 1_000 + sweep_seconds

    def wait(self, waiting: Callable[[], None] = lambda: None) -> None:
        """Return when all that were open at the call have ended, however long that takes; later ones do not matter.

        `waiting` is called meanwhile and may raise. Raises NotAllowed where the broker does not let us look.
        """
        with contextlib.closing(Positions(self._settings, self._client_id, self._group)) as positions:
            self._wait(positions, waiting)

    def _wait(self, positions: "Positions", waiting: Callable[[], None]) -> None:
        admin = kafka.admin(self._settings, self._client_id)  # a new one: after a broker's death an old one may keep asking it
        began, tell_after = time.monotonic(), min(TELL_SECONDS, self._limit)
        ends: dict[TopicPartition, int] | None = None
        unread: list[TopicPartition] = []
        singly = False
        while True:
            try:
                if ends is None:
                    unread = _partitions(admin, self._read)
                    ends = _ends(admin, _partitions(admin, self._written), IsolationLevel.READ_UNCOMMITTED)
                stable = _ends(admin, list(ends), IsolationLevel.READ_COMMITTED)
                ends = {partition: end for partition, end in ends.items() if stable[partition] < end}
                if not ends:
                    unread, singly = positions.undecided(unread, singly=singly), True
            except KafkaException as exception:
                _refuse(exception.args[0])
                said, hint = f"whether transactions are open is not known: {exception.args[0].str()}", AWAY_HINT
            else:
                if not ends and not unread:
                    return
                said, hint = _describe(ends, stable, self._group, unread), HINT
            waited = time.monotonic() - began
            if waited > tell_after:
                tell_after = max(2 * waited, self._limit)
                level, more = (logging.ERROR, f"; {hint}") if waited > self._limit else (logging.WARNING, "")
                log.log(level, "waiting for %.0f s: %s%s", waited, said, more)
            waiting()
            time.sleep(min(SLOWEST_LOOK_SECONDS, max(LOOK_SECONDS, waited / 100)))


class Positions:
    """The committed positions of a group, asked for by a consumer that does not join it. (The library's administrative client
    may end the process where a coordinator goes away in the middle of an answer: librdkafka #4605.)"""

    def __init__(self, settings: KafkaSettings, client_id: str, group: str) -> None:
        self._consumer: Consumer | None = kafka.reader(settings, client_id, **{"group.id": group}) if group else None

    def close(self) -> None:
        """End the consumer."""
        if self._consumer is not None:
            self._consumer.close()

    def undecided(self, partitions: list[TopicPartition], *, singly: bool) -> list[TopicPartition]:
        """Those with a position that belongs to an open transaction, and perhaps others, which further calls with `singly`
        leave out.

        The client repeats a question for as long as one partition in it is undecided, and asks no other meanwhile. So a call
        asks for all together and, with `singly`, for each until one is undecided: that one comes last in the next call.
        Raises KafkaException where the group's coordinator does not answer.
        """
        if self._consumer is None or not partitions:
            return []
        nobodys = TopicPartition(partitions[0].topic, NO_PARTITION)  # always decided: only a coordinator that is away is silent
        if not _told(self._consumer, [nobodys], ANSWER_SECONDS):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the group's coordinator does not answer"))
        if _told(self._consumer, partitions, TOLD_SECONDS):
            return []
        for number, partition in enumerate(partitions if singly else ()):
            if not _told(self._consumer, [partition], TOLD_SECONDS):
                return [*partitions[number + 1 :], partition]
        return [] if singly else partitions


def _told(consumer: Consumer, partitions: list[TopicPartition], seconds: float) -> bool:
    """Whether the committed positions are told in time. Raises KafkaException where they are refused."""
    try:
        found = consumer.committed(partitions, timeout=seconds)
    except KafkaException as exception:
        if exception.args[0].code() == KafkaError._TIMED_OUT:
            return False
        raise
    wrong = next((p.error for p in found if p.error is not None), None)
    if wrong is not None:
        raise KafkaException(wrong)
    return True


def _refuse(error: KafkaError) -> None:
    """Raises NotAllowed where the broker says that a right is missing, which no waiting cures."""
    if error.code() in REFUSED_CODES:
        hint = "it takes Describe on the topics that are written, and Read on the group and on what it reads"
        raise NotAllowed(f"the broker does not tell whether transactions are open: {error}", hint)


def _partitions(admin: AdminClient, names: Iterable[str]) -> list[TopicPartition]:
    """All partitions of these topics, in their order."""
    found = []
    for name in names:
        topic = admin.list_topics(name, timeout=ANSWER_SECONDS).topics[name]
        if topic.error is not None:
            raise KafkaException(topic.error)
        found += [TopicPartition(name, number) for number in sorted(topic.partitions)]
    return found


def _ends(admin: AdminClient, partitions: list[TopicPartition], isolation: IsolationLevel) -> dict[TopicPartition, int]:
    """The next offset of each, for readers of this isolation. Raises KafkaException where one is not told: a broker that has
    just come back may leave it out."""
    if not partitions:
        return {}
    wanted = dict.fromkeys(partitions, LATEST)
    asked = admin.list_offsets(wanted, isolation_level=isolation, request_timeout=ANSWER_SECONDS)
    found = {partition: told.result().offset for partition, told in asked.items()}
    for partition, offset in found.items():
        if offset < 0:
            raise KafkaException(
                KafkaError(KafkaError.LEADER_NOT_AVAILABLE, f"the end of {partition.topic}[{partition.partition}] is not told")
            )
    return found


def _describe(
    ends: dict[TopicPartition, int], stable: dict[TopicPartition, int], group: str, unread: list[TopicPartition]
) -> str:
    """One partition of an open transaction, and how many more are known."""
    where = [f"{p.topic}[{p.partition}] from offset {stable[p]} on" for p in ends]
    where = where or [f"the position of group {group} in {p.topic}[{p.partition}]" for p in unread]
    more = f" (and {len(where) - 1} more)" if len(where) > 1 else ""
    return f"a transaction is open in {where[0]}{more}"
