"""Fencing the dead: end the transactions that a killed process left open, before their time-out would.

An open transaction hides everything behind it from read_committed readers until its time-out (10 s by default) and the
broker's next sweep. Whoever takes the partitions over knows the last owner from the metadata of the committed offsets, sees
from the group's members that it is gone, and initialises its transactional ids: the broker aborts at once.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import KafkaException, Producer

from publisher.errors import Fatal
from publisher.session.transactional_ids import POOL_SIZE, initialised, transactional_ids

log = logging.getLogger(__name__)

FENCE_SECONDS = 5.0


def fence(make_producer: Callable[[str], Producer], prefixes: Iterable[str]) -> None:
    """Initialise every transactional id of these processes. A live one that is fenced by mistake only has to recover."""
    ids = [name for prefix in prefixes for name in transactional_ids(prefix)]
    if not ids:
        return
    log.info("ending what these left open: %s", ", ".join(ids))
    never = threading.Event()
    with ThreadPoolExecutor(POOL_SIZE, thread_name_prefix="fence") as pool:
        for made in [pool.submit(initialised, make_producer, name, time.monotonic, never, FENCE_SECONDS) for name in ids]:
            try:
                made.result()
            except (Fatal, KafkaException) as error:
                log.warning("could not fence: %s; the transaction time-out will", error)
