"""The transactional ids of a process: their names, taking them over, and fencing those of dead processes.

An id is `<name>/<role>/...`. No name and no replica contains a `/`, so ids of different names or roles never coincide, and
rights are granted by prefix: `<name>/<role>/`.
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
"""After a commit the broker still writes markers; a new transaction of the same producer would meet CONCURRENT_TRANSACTIONS and
back off for `retry.backoff.ms`. Measured commits of small batches: 98 ms with one producer, 2.8 ms with several."""
CALL_SECONDS = 5.0  # one call of librdkafka; a step repeats it up to the transaction timeout
PAUSE_SECONDS = 0.02  # between calls
FENCED_SECONDS = 0.5  # before another producer replaces one that was fenced while it initialised
FENCE_SECONDS = 5.0
GRANT = "kafka-acls.sh --add --allow-principal User:NAME --operation Write --resource-pattern-type prefixed"


def transactional_ids(prefix: str) -> list[str]:
    """Return the ids of a process's pool. `prefix` is unique to the process: `<name>/<role>`, and for most a replica."""
    return [f"{prefix}/{k}" for k in range(POOL_SIZE)]


def initialised(
    make_producer: Callable[[str], Producer],
    name: str,
    clock: Callable[[], float],
    closing: threading.Event,
    seconds: float,
) -> Producer:
    """Return a producer of this id after its init_transactions.

    Every other producer of the id is then fenced, and its open transaction is decided. While the broker still ends an older
    producer's transaction, it may report the new producer as fenced; that producer is then replaced by another one. Two
    processes with the same id do not fence each other for ever: the process that began last has the id.

    Raises:
        Fatal: if repeating cannot help, or after `seconds`.
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
            required = verdict(SessionStep.RECOVER, error)
            if required not in (ErrorVerdict.REPEAT, ErrorVerdict.FENCED) or clock() > deadline or closing.is_set():
                raise _init_error(name, error, producer) from exception
            if required is ErrorVerdict.REPEAT:
                closing.wait(PAUSE_SECONDS)
            else:
                closing.wait(FENCED_SECONDS)
                producer = make_producer(name)


def fence(make_producer: Callable[[str], Producer], prefixes: Iterable[str]) -> None:
    """Initialise every transactional id of these processes, so that the broker aborts their open transactions at once.

    Otherwise the transaction of a killed process hides all records behind it from read_committed readers until its time-out
    (10 s) and the broker's next sweep. A live process that is fenced by mistake only has to recover.
    """
    ids = [name for prefix in prefixes for name in transactional_ids(prefix)]
    if not ids:
        return
    log.info("ending open transactions of: %s", ", ".join(ids))
    not_closing = threading.Event()
    with ThreadPoolExecutor(POOL_SIZE, thread_name_prefix="fence") as pool:
        for call in [pool.submit(initialised, make_producer, name, time.monotonic, not_closing, FENCE_SECONDS) for name in ids]:
            try:
                call.result()
            except (Fatal, KafkaException) as error:
                log.warning("could not fence: %s; the transaction time-out will", error)


def _init_error(name: str, error: KafkaError, producer: Producer) -> Fatal:
    message = f"the broker does not let transactional.id {name!r} begin: {error}"
    if error in LONG_TRANSACTION:
        setting = producer.timeout_setting if isinstance(producer, HandledProducer) else HandledProducer.timeout_setting
        return Fatal(
            f"{setting} is above the broker's transaction.max.timeout.ms: {message}",
            f"lower {setting.split()[0]}, or raise transaction.max.timeout.ms in the configuration of every broker",
            USAGE,
        )
    if error not in REFUSED:
        return Fatal(message, "check the broker")
    prefix = "/".join(name.split("/")[:2]) + "/"
    hint = f"allow Write on transactional-id {prefix!r} and all with this prefix: {GRANT} --transactional-id {prefix}"
    return NotAllowed(f"no right to Write on transactional-id {name!r}: {message}", hint)
