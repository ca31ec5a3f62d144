"""The transactional ids of a process: how many it has, their names, and taking them over."""

import threading
from collections.abc import Callable

from confluent_kafka import KafkaException, Producer

from publisher.errors import Fatal, NotAllowed
from publisher.transaction_states import REFUSED_CODES, Step, Verdict, verdict

POOL_SIZE = 3
CALL_SECONDS = 5.0  # one call of librdkafka; a step repeats it up to the transaction timeout
GRANT = "kafka-acls.sh --add --allow-principal User:NAME --operation Write --resource-pattern-type prefixed"


def transactional_ids(prefix: str) -> list[str]:
    """The ids of the pool of the process whose owner id is `prefix`."""
    return [f"{prefix}.{k}" for k in range(POOL_SIZE)]


def initialise(
    producer: Producer,
    name: str,
    clock: Callable[[], float],
    closing: threading.Event,
    seconds: float,
) -> None:
    """init_transactions until it succeeds: fences every other producer of this id and decides what it left open.

    Raises Fatal where repeating cannot help or `seconds` are over.
    """
    deadline = clock() + seconds
    while True:
        try:
            return producer.init_transactions(CALL_SECONDS)
        except KafkaException as exception:
            error = exception.args[0]
            if verdict(Step.RECOVER, error) is not Verdict.REPEAT or clock() > deadline or closing.is_set():
                said = f"the broker does not let transactional.id {name!r} begin: {error}"
                if error.code() in REFUSED_CODES:
                    prefix = name.rpartition(".")[0] + "."
                    hint = (
                        f"allow Write on transactional-id {prefix!r} and all that begin so: {GRANT} --transactional-id {prefix}"
                    )
                    raise NotAllowed(f"no right to Write on transactional-id {name!r}: {said}", hint) from None
                raise Fatal(said, "check the broker") from exception
            closing.wait(0.02)
