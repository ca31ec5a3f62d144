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

from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from publisher.errors import NotAllowed
from publisher.kafka import clients as kafka
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.error_codes import REFUSED
from publisher.kafka.groups import GroupReader
from publisher.kafka.partitions import LATEST, Offsets, Partition, leaders, offsets

log = logging.getLogger(__name__)

ANSWER_SECONDS = 5.0
LOOK_SECONDS = 0.02  # a transaction of somebody who is well takes about as long
SWEEP_SECONDS = 20.0  # beyond the transaction timeout: how late a broker notices that one is over (every 10 s by default)
SLOWEST_LOOK_SECONDS = 1.0
TELL_SECONDS = 5.0
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
        with contextlib.ExitStack() as closing:
            group = GroupReader(self._settings, self._client_id, self._group, decided=True) if self._group else None
            if group is not None:
                closing.callback(group.close)
            self._wait(group, waiting)

    def _wait(self, group: GroupReader | None, waiting: Callable[[], None]) -> None:
        admin = kafka.admin(self._settings, self._client_id)  # a new one: after a broker's death an old one may keep asking it
        began, tell_after = time.monotonic(), min(TELL_SECONDS, self._limit)
        ends: Offsets | None = None
        unread: list[Partition] = []
        singly = False
        while True:
            try:
                if ends is None:
                    unread = _partitions(admin, self._read)
                    ends = offsets(admin, _partitions(admin, self._written), LATEST, ANSWER_SECONDS)
                stable = offsets(admin, ends, LATEST, ANSWER_SECONDS, IsolationLevel.READ_COMMITTED)
                ends = {partition: end for partition, end in ends.items() if stable[partition] < end}
                if not ends and group is not None:
                    unread, singly = group.undecided(unread, singly=singly), True
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


def _refuse(error: KafkaError) -> None:
    """Raises NotAllowed where the broker says that a right is missing, which no waiting cures."""
    if error in REFUSED:
        hint = "it takes Describe on the topics that are written, and Read on the group and on what it reads"
        raise NotAllowed(f"the broker does not tell whether transactions are open: {error}", hint)


def _partitions(admin: AdminClient, names: Iterable[str]) -> list[Partition]:
    """All partitions of these topics, in their order."""
    return [partition for name in names for partition in leaders(admin, name, ANSWER_SECONDS)]


def _describe(ends: Offsets, stable: Offsets, group: str, unread: list[Partition]) -> str:
    """One partition of an open transaction, and how many more are known."""
    where = ["{}[{}] from offset {} on".format(*partition, stable[partition]) for partition in ends]
    where = where or ["the position of group {} in {}[{}]".format(group, *partition) for partition in unread]
    more = f" (and {len(where) - 1} more)" if len(where) > 1 else ""
    return f"a transaction is open in {where[0]}{more}"
