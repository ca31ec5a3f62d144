"""Wait until no transaction is open in the partitions that a session writes to.

A session waits here at its start and after every recovery (usually 5 ms). Otherwise Kafka 4.3 and 4.4 could make the records of
an aborted transaction visible (KAFKA-20734): measured 93 duplicate scores, or 88 skipped events.
"""

# `init_transactions` ends the open transaction of its id, and the broker writes an end marker into every partition of the
# transaction. Kafka 4.3 and 4.4 omit partitions without a leader, for example while the only broker of a cluster restarts after
# the transaction timeout, and never write the marker later. The transaction then stays open in these partitions, and the end
# marker of the same producer's next transaction would end both. librdkafka 2.16 does not report the owner of a transaction, and
# a transaction of another program may hide one of this session. The session therefore also waits for the transactions of others
# that are open when it has taken over its ids.

import contextlib
import logging
import time
from collections.abc import Iterable

from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from publisher.errors import NotAllowed
from publisher.kafka import clients as kafka
from publisher.kafka import roles
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.error_codes import REFUSED
from publisher.kafka.groups import GroupReader
from publisher.kafka.partitions import LATEST, Offsets, Partition, leaders, offsets
from publisher.runtime.context import Context

log = logging.getLogger(__name__)

ANSWER_SECONDS = 5.0
CHECK_SECONDS = 0.02  # between two checks at first; the transaction of a healthy process takes about as long
SWEEP_SECONDS = 20.0  # beyond the transaction timeout: how late a broker ends one (it checks every 10 s by default)
SLOWEST_CHECK_SECONDS = 1.0
WARN_SECONDS = 5.0
HINT = (
    "work continues when the transaction ends. Either another program keeps transactions open there, or a broker has not ended "
    "one (KAFKA-20734): kafka-transactions.sh --bootstrap-server ... find-hanging lists it; see "
    "deploy/runbooks/ScorerOpenTransaction.md"
)
UNAVAILABLE_HINT = "check the brokers, and that the partitions have leaders"


class OpenTransactions:
    """Waits for the end of open transactions, of any producer, in a session's output topics and in its group's positions.

    Args:
        settings: the settings of the connection.
        client_id: the id of the clients that send the requests.
        written: the topics that the session writes to.
        group: the consumer group whose positions the session commits; empty if it commits none.
        read: the input topics in which the session commits positions for `group`.
        sweep_seconds: how long after its timeout a transaction may stay open, because brokers check only at intervals.
    """

    # A wait that is longer than the transaction timeout and `sweep_seconds` together is logged as an error. By then the broker
    # has ended every transaction of this product, unless it has lost track of one (KAFKA-20734).

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

    def wait(self, context: Context) -> None:
        """Wait, without a time limit, until all transactions that are open at the time of the call have ended.

        Raises:
            NotAllowed: if the broker's access control does not allow the requests.
            Exception: any error that `context.check` raises.
        """
        with contextlib.ExitStack() as closing:
            group = GroupReader(self._settings, self._client_id, self._group, decided=True) if self._group else None
            if group is not None:
                closing.callback(group.close)
            self._wait(group, context)

    def _wait(self, group: GroupReader | None, context: Context) -> None:
        admin = kafka.admin(
            self._settings, self._client_id
        )  # a new client: an old one may keep connecting to a broker that died
        clock = context.clock.monotonic
        began = clock()
        warn_after = min(WARN_SECONDS, self._limit)
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
                    unread = group.undecided(unread, singly=singly)
                    singly = True
            except KafkaException as exception:
                _raise_missing_right(exception.args[0])
                message = f"it is unknown whether transactions are open: {exception.args[0].str()}"
                hint = UNAVAILABLE_HINT
            else:
                if not ends and not unread:
                    return
                message = _describe(ends, stable, self._group, unread)
                hint = HINT
            waited = clock() - began
            if waited > warn_after:
                warn_after = max(2 * waited, self._limit)
                if waited > self._limit:
                    log.error("this process has waited for %.0f s: %s; %s", waited, message, hint)
                else:
                    log.warning("this process has waited for %.0f s: %s", waited, message)
            context.check()
            time.sleep(min(SLOWEST_CHECK_SECONDS, max(CHECK_SECONDS, waited / 100)))


def _raise_missing_right(error: KafkaError) -> None:
    if error in REFUSED:
        grant = "grant Describe on the output topics, and Read on the group and on its input topics"
        hint = roles.hint(grant, roles.running_role())
        raise NotAllowed(f"the broker denies access to the state of open transactions: {error}", hint)


def _partitions(admin: AdminClient, names: Iterable[str]) -> list[Partition]:
    return [partition for name in names for partition in leaders(admin, name, ANSWER_SECONDS)]


def _describe(ends: Offsets, stable: Offsets, group: str, unread: list[Partition]) -> str:
    """Return a message that names one partition with an open transaction, and the number of other partitions.

    Args:
        ends: the end offsets of output partitions with open transactions.
        stable: the last stable offsets of the output partitions.
        group: the consumer group.
        unread: the input partitions whose committed positions may still change.
    """
    where = ["{}[{}] from offset {} on".format(*partition, stable[partition]) for partition in ends]
    where = where or ["the position of group {} in {}[{}]".format(group, *partition) for partition in unread]
    more = f" (and {len(where) - 1} more)" if len(where) > 1 else ""
    return f"a transaction is open in {where[0]}{more}"
