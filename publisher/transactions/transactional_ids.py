"""The transactional ids of a process: their names, how a process takes them over, and how it fences dead processes.

An id is `<name>/<role>/...`, with the name of the scorer or relay. Rights are granted by prefix: `<name>/<role>/`.
"""

# No name and no replica contains a `/`, so ids of different names or roles never coincide.

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import wait
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Producer

from publisher.errors import USAGE, Fatal, NotAllowed
from publisher.kafka import roles
from publisher.kafka.clients import HandledProducer, unwrap_kafka_errors
from publisher.kafka.error_codes import LONG_TRANSACTION, REFUSED
from publisher.runtime.abandonable_call import CallThread
from publisher.runtime.context import Context
from publisher.transactions.state_machine import ErrorVerdict, SessionStep, verdict

log = logging.getLogger(__name__)

POOL_SIZE = 3
"""The number of producers of a session. After a commit the broker still writes markers, so that a new transaction of the same
producer would fail with CONCURRENT_TRANSACTIONS and wait for `retry.backoff.ms`. Measured commits of small batches: 98 ms with
one producer, 2.8 ms with several."""
CALL_SECONDS = 5.0  # one call of librdkafka; a step repeats it up to the transaction timeout
PAUSE_SECONDS = 0.02  # between calls
FENCED_SECONDS = 0.5  # before another producer replaces one that was fenced while it initialised
FENCE_SECONDS = 5.0  # the limit for one id of a dead process
CHECK_SECONDS = 0.1  # between checks of the context while ids are fenced


def transactional_ids(prefix: str) -> list[str]:
    """Return the transactional ids of a process, one for each producer of its pool.

    `prefix` is unique to the process: `<name>/<role>`, for most roles followed by the replica.
    """
    return [f"{prefix}/{k}" for k in range(POOL_SIZE)]


def initialised(
    make_producer: Callable[[str], Producer],
    name: str,
    clock: Callable[[], float],
    closing: threading.Event,
    seconds: float,
) -> Producer:
    """Return a new producer with the transactional id `name`, after its `init_transactions` has succeeded.

    This fences every other producer of the id, and commits or aborts the open transaction of the id.

    Args:
        make_producer: returns a producer for an id.
        name: the transactional id.
        clock: monotonic seconds.
        closing: set when the caller no longer needs the producer.
        seconds: how long a failed call is repeated.

    Raises:
        Fatal: if `init_transactions` fails with an error that no retry cures. For other errors: if it still fails after
            `seconds`, or after `closing` is set.
    """
    # While the broker has not ended the open transaction, it may report the new producer as fenced; another producer is then
    # created. Two processes with the same id do not fence each other for ever, because the process that began last keeps the
    # id.
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


def fence(make_producer: Callable[[str], Producer], prefixes: Iterable[str], context: Context) -> None:
    """Initialise every transactional id of dead processes, so that the broker aborts their open transactions at once.

    An id that cannot be initialised is logged.

    Args:
        make_producer: returns a producer for an id.
        prefixes: the prefix of each process, as in `transactional_ids`.
        context: `context.check` is called until all ids are initialised. An error that it raises abandons the remaining ids.
    """
    # Otherwise the transaction of a killed process hides all later records from read_committed readers until its time-out (10
    # s) and the broker's next sweep. A live process that is fenced by mistake only has to recover.
    ids = [name for prefix in prefixes for name in transactional_ids(prefix)]
    if not ids:
        return
    log.info("ending the open transactions of these transactional ids: %s", ", ".join(ids))
    closing = threading.Event()

    def take_over(name: str) -> None:
        if not closing.is_set():
            initialised(make_producer, name, time.monotonic, closing, FENCE_SECONDS)

    threads = [CallThread("fence") for _ in range(POOL_SIZE)]
    calls = [threads[k % POOL_SIZE].submit(partial(take_over, name)) for k, name in enumerate(ids)]
    try:
        while wait(calls, CHECK_SECONDS).not_done:
            context.check()
    finally:
        closing.set()
        for thread in threads:
            thread.close()
    for call in calls:
        try:
            call.result()
        except (Fatal, KafkaException) as error:
            log.warning("could not fence a dead process: %s; its open transaction ends at the transaction time-out", error)


def _init_error(name: str, error: KafkaError, producer: Producer) -> Fatal:
    message = f"transactional.id {name!r} cannot be initialised: {error}"
    if error in LONG_TRANSACTION:
        setting = producer.timeout_setting if isinstance(producer, HandledProducer) else HandledProducer.timeout_setting
        return Fatal(
            f"{setting} is above the broker's transaction.max.timeout.ms: {message}",
            f"lower {setting.split()[0]}, or raise transaction.max.timeout.ms in the configuration of every broker",
            USAGE,
        )
    if error not in REFUSED:
        return Fatal(message, "see the broker's log")
    prefix = "/".join(name.split("/")[:2]) + "/"
    role = roles.running_role()
    command = (
        f"kafka-acls.sh --add --allow-principal User:{roles.principal('', role)} --operation Write "
        f"--resource-pattern-type prefixed --transactional-id {prefix}"
    )
    grant = f"grant Write on all transactional ids with the prefix {prefix!r}: {command}"
    return NotAllowed(f"no right to Write on transactional-id {name!r}: {message}", roles.hint(grant, role))
