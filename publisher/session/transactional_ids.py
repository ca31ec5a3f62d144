"""The transactional ids of a process: how many it has, their names, and taking them over.

An id is `<name>/<role>/...`. No name and no replica holds a `/`, so ids of different names or roles never coincide, and rights
are given by prefix: `<name>/<role>/`.
"""

import threading
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException, Producer

from publisher.errors import Fatal, NotAllowed
from publisher.kafka.clients import unwrapping
from publisher.kafka.error_codes import REFUSED
from publisher.session.states import Step, Verdict, verdict

POOL_SIZE = 3
CALL_SECONDS = 5.0  # one call of librdkafka; a step repeats it up to the transaction timeout
PAUSE_SECONDS = 0.02  # between calls
FENCED_SECONDS = 0.5  # before another producer takes the turn of one that was fenced while it began
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
            with unwrapping():
                producer.init_transactions(CALL_SECONDS)
            return producer
        except KafkaException as exception:
            error = exception.args[0]
            answer = verdict(Step.RECOVER, error)
            if answer not in (Verdict.REPEAT, Verdict.FENCED) or clock() > deadline or closing.is_set():
                raise _refusal(name, error) from exception
            if answer is Verdict.REPEAT:
                closing.wait(PAUSE_SECONDS)
            else:
                closing.wait(FENCED_SECONDS)
                producer = make_producer(name)


def _refusal(name: str, error: KafkaError) -> Fatal:
    said = f"the broker does not let transactional.id {name!r} begin: {error}"
    if error not in REFUSED:
        return Fatal(said, "check the broker")
    prefix = "/".join(name.split("/")[:2]) + "/"
    hint = f"allow Write on transactional-id {prefix!r} and all that begin so: {GRANT} --transactional-id {prefix}"
    return NotAllowed(f"no right to Write on transactional-id {name!r}: {said}", hint)
