"""Calls of a producer that wait for the broker: how often each is made, and what its error is raised as."""

import contextlib
import logging
from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from publisher.errors import Aborted, Evicted, Fenced, NotAllowed, RecordFailed, RecordRejected
from publisher.kafka.clients import unwrap_kafka_errors
from publisher.transactions.state_machine import ErrorVerdict, SessionStep, verdict
from publisher.transactions.transactional_ids import CALL_SECONDS

log = logging.getLogger(__name__)

STUCK_SECONDS = 0.25  # a client sends nothing more once a record of the transaction was refused
STUCK_CALL_SECONDS = 1.0  # a commit then waits in vain for the others; the next one tells why
RIGHTS_HINT = "it takes Write on the topics and on the transactional-id, and Read on the group"
REASONS = {
    ErrorVerdict.FENCED: Fenced,
    ErrorVerdict.EVICTED: Evicted,
    ErrorVerdict.UNFIT: RecordRejected,
    ErrorVerdict.HIDDEN: RecordFailed,
}


class CommitTiming(NamedTuple):
    """How long a commit took, in seconds: with the way of the records to the broker, and without."""

    seconds: float
    ending: float


class RetryingCalls:
    """See the module. A step repeats its call for up to `transaction_seconds`; `began` is when the last call was made, by
    `clock` (monotonic seconds)."""

    def __init__(self, transaction_seconds: float, clock: Callable[[], float]) -> None:
        self.began = 0.0
        self._transaction_seconds = transaction_seconds
        self._clock = clock

    def make(self, step: SessionStep, call: Callable[[], None]) -> None:
        """Make a call, again where `verdict` says so and the transaction timeout is not over. Raises Aborted, of any kind, and
        NotAllowed."""
        deadline = self._clock() + self._transaction_seconds
        while True:
            self.began = self._clock()
            try:
                with unwrap_kafka_errors():
                    return call()
            except KafkaException as exception:
                error = exception.args[0]
                answer = verdict(step, error)
                log.warning("%s failed: %s (%s)", step.value, error, answer.name.lower())
                if answer is not ErrorVerdict.REPEAT or self._clock() >= deadline:
                    raise reason(step, error) from exception

    def seal(self, producer: Producer, offsets: list[TopicPartition], group_metadata: Any) -> CommitTiming:
        """Send the offsets, if there are any, and commit. Raises as `make` does."""
        if offsets:
            self.make(
                SessionStep.SEND_OFFSETS, lambda: producer.send_offsets_to_transaction(offsets, group_metadata, CALL_SECONDS)
            )
        began, left = self._clock(), inf
        still = 1
        with contextlib.suppress(KafkaException), unwrap_kafka_errors():  # the commit tells of what a flush may raise
            while 0 < (still := producer.flush(STUCK_SECONDS)) < left:
                self.began, left = self._clock(), still
        seconds, sent = STUCK_CALL_SECONDS if still else CALL_SECONDS, self._clock()
        self.make(SessionStep.COMMIT, lambda: producer.commit_transaction(seconds))
        now = self._clock()
        return CommitTiming(now - began, now - sent)


def reason(step: SessionStep, error: KafkaError) -> Aborted | NotAllowed:
    """What an error at a step is raised as."""
    answer = verdict(step, error)
    if answer is ErrorVerdict.REFUSED:
        return NotAllowed(f"the broker does not allow to {step.value}: {error}", RIGHTS_HINT)
    raised: Aborted = REASONS.get(answer, Aborted)(str(error))
    if isinstance(raised, RecordFailed):
        raised.code = error.code()
    return raised
