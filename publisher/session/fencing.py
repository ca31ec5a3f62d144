"""Fencing the dead: end the transactions that a killed process left open, before their time-out would.

An open transaction hides everything behind it from read_committed readers until its time-out (10 s by default) and the
broker's next sweep. Whoever takes the partitions over knows the last owner from the metadata of the committed offsets, sees
from the group's members that it is gone, and initialises its transactional ids: the broker aborts at once.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from publisher.errors import Fatal
from publisher.kafka import clients as kafka
from publisher.kafka import rights
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.error_codes import REFUSED_CODES
from publisher.kafka.rights import READ, Right
from publisher.session.transactional_ids import POOL_SIZE, initialised, transactional_ids

log = logging.getLogger(__name__)

ADMIN_SECONDS = 5.0


def live_clients(admin: AdminClient, group: str) -> set[str]:
    """The client ids of the group's members now. Raises KafkaException where the coordinator does not answer."""
    description = admin.describe_consumer_groups([group], request_timeout=ADMIN_SECONDS)[group].result()
    return {member.client_id for member in description.members}


def may_join(admin: AdminClient, settings: KafkaSettings, group: str) -> None:
    """Whether the broker lets this client work in the group. Raises Fatal (3) where it does not; a broker that does not tell
    is asked no further."""
    asked = admin.describe_consumer_groups([group], include_authorized_operations=True, request_timeout=ADMIN_SECONDS)
    lacking = [Right(READ, rights.GROUP, group)]
    try:
        allowed = asked[group].result().authorized_operations
    except KafkaException as error:
        if error.args[0].code() in REFUSED_CODES:
            raise rights.refused(settings, lacking) from None
        log.info("the rights to group %s are not known yet: %s", group, error.args[0])
        return
    if allowed and READ not in allowed:
        raise rights.refused(settings, lacking)


def last_metadata(
    settings: KafkaSettings, client_id: str, group: str, partitions: Sequence[TopicPartition]
) -> dict[tuple[str, int], str | None]:
    """The metadata of each partition's committed offset, pending transactions or not. Raises KafkaException.

    By a consumer: the administrative client may end the process where the coordinator goes away meanwhile (librdkafka #4605).
    """
    consumer = kafka.reader(settings, client_id, **{"group.id": group, "isolation.level": "read_uncommitted"})
    try:
        answer = consumer.committed([TopicPartition(p.topic, p.partition) for p in partitions], timeout=ADMIN_SECONDS)
    finally:
        consumer.close()
    return {(p.topic, p.partition): p.metadata for p in answer}


def fence(make_producer: Callable[[str], Producer], prefixes: Iterable[str]) -> None:
    """Initialise every transactional id of these processes. A live one that is fenced by mistake only has to recover."""
    ids = [name for prefix in prefixes for name in transactional_ids(prefix)]
    if not ids:
        return
    log.info("ending what these left open: %s", ", ".join(ids))
    never = threading.Event()
    with ThreadPoolExecutor(POOL_SIZE, thread_name_prefix="fence") as pool:
        for made in [pool.submit(initialised, make_producer, name, time.monotonic, never, ADMIN_SECONDS) for name in ids]:
            try:
                made.result()
            except (Fatal, KafkaException) as error:
                log.warning("could not fence: %s; the transaction time-out will", error)
