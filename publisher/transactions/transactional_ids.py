"""The transactional ids of a process: how many it has, their names, taking them over, and ending what the dead left open.

An id is `<name>/<role>/...`. No name and no replica holds a `/`, so ids of different names or roles never coincide, and rights
are given by prefix: `<name>/<role>/`.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import KafkaError, KafkaException, Producer

from publisher.errors import USAGE, Fatal, NotAllowed
from publisher.kafka.clients import HandledProducer, unwrap_kafka_errors
from publisher.kafka.error_codes import LONG_TRANSACTION, REFUSED
from publisher.transactions.state_machine import ErrorVerdict, SessionStep, verdict

log = logging.getLogger(__name__)

POOL_SIZE = 3
CALL_SECONDS = 5.0  # one call of librdkafka; a step repeats it up to the transaction timeout
PAUSE_SECONDS = 0.02  # between calls
FENCED_SECONDS = 0.5  # before another producer takes the turn of one that was fenced while it began
FENCE_SECONDS = 5.0
GRANT = "kafka-acls.sh --add --allow-principal User:NAME --operation Write --resource-pattern-type prefixed"


def transactional_ids(prefix: str) -> list[str]:
    """The ids of the pool of the process whose ids begin so: `<name>/<role>`, and what else tells it from others."""
    return [f"{prefix}/{k}" for k in range(POOL_SIZE)]


def initialised(
    make_producer: Callable[[str], Producer],
    name: str,
    clock: Callable[[], float],
    closing: threading.Event,
    seconds: float,
) -> Producer:
    """A producer of this id after its init_transactions: every other of the id is fenced, and what it left open is decided.

    A broker may answer that it is fenced while the end of an older one's transaction is under way: that one is no good any
    more, and another takes its turn. Two processes with one id do not fence each other here: the last one to begin has it.

    Raises Fatal where repeating cannot help or `seconds` are over.
    """
    deadline = clock() + seconds
    producer = make_producer(name)
    while True:
        try:
            with unwrap_kafka_errors():
                producer.init_transactions(CALL_SECONDS)
            return producer
        except KafkaException as exception:
            error = exception.args[0]
            answer = verdict(SessionStep.RECOVER, error)
            if answer not in (ErrorVerdict.REPEAT, ErrorVerdict.FENCED) or clock() > deadline or closing.is_set():
                raise _refusal(name, error, producer) from exception
            if answer is ErrorVerdict.REPEAT:
                closing.wait(PAUSE_SECONDS)
            else:
                closing.wait(FENCED_SECONDS)
                producer = make_producer(name)


def fence(make_producer: Callable[[str], Producer], prefixes: Iterable[str]) -> None:
    """Initialise every transactional id of these processes. A live one that is fenced by mistake only has to recover.

    A transaction that a killed process left open hides everything behind it from read_committed readers until its time-out and
    the broker's next sweep; so it is aborted at once.
    """
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


def _refusal(name: str, error: KafkaError, producer: Producer) -> Fatal:
    said = f"the broker does not let transactional.id {name!r} begin: {error}"
    if error in LONG_TRANSACTION:
        setting = producer.timeout_setting if isinstance(producer, HandledProducer) else HandledProducer.timeout_setting
        return Fatal(
            f"{setting} is above the broker's transaction.max.timeout.ms: {said}",
            f"lower {setting.split()[0]}, or raise transaction.max.timeout.ms in the configuration of every broker",
            USAGE,
        )
    if error not in REFUSED:
        return Fatal(said, "check the broker")
    prefix = "/".join(name.split("/")[:2]) + "/"
    hint = f"allow Write on transactional-id {prefix!r} and all that begin so: {GRANT} --transactional-id {prefix}"
    return NotAllowed(f"no right to Write on transactional-id {name!r}: {said}", hint)
