"""The calls of a transactional producer to the broker: which failed call is repeated, and which exception is raised.

A failed commit is repeated only if the repeated call can still return the outcome.
"""

import contextlib
import logging
from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from publisher.errors import Aborted, Evicted, Fenced, NotAllowed, RecordFailed, RecordRejected
from publisher.kafka import roles
from publisher.kafka.clients import unwrap_kafka_errors
from publisher.transactions.state_machine import ErrorVerdict, SessionStep, verdict
from publisher.transactions.transactional_ids import CALL_SECONDS

log = logging.getLogger(__name__)

STUCK_SECONDS = 0.25  # a flush without progress ends: the client sends nothing more once a record was rejected
STUCK_CALL_SECONDS = 1.0  # the limit of the commit after a stuck flush: it waits in vain for unsent records
RIGHTS_HINT = "grant Write on the topics and on the transactional-id, and Read on the group"
ERROR_TYPES: dict[ErrorVerdict, type[Aborted]] = {
    ErrorVerdict.FENCED: Fenced,
    ErrorVerdict.EVICTED: Evicted,
    ErrorVerdict.UNFIT: RecordRejected,
    ErrorVerdict.HIDDEN: RecordFailed,
}


class CommitTiming(NamedTuple):
    """The duration of a commit in seconds.

    Attributes:
        seconds: from the flush of the records to the broker's confirmation.
        ending: the part after the broker had confirmed the records.
    """

    seconds: float
    ending: float


class RetryingCalls:
    """Makes the broker calls of one session. `clock` is monotonic, in seconds.

    A failed call is repeated for up to `transaction_seconds`. `began` is the time at which the last call started, so that
    another thread can detect a call that hangs.
    """

    def __init__(self, transaction_seconds: float, clock: Callable[[], float]) -> None:
        self.began = 0.0
        self._transaction_seconds = transaction_seconds
        self._clock = clock

    def run(self, step: SessionStep, call: Callable[[], None]) -> None:
        """Make the broker call of a step, and repeat a failed call for up to `transaction_seconds` if `verdict` allows it.

        Raises:
            Aborted: if the call has failed for good. `error_for` selects the subclass of Aborted.
            NotAllowed: if the broker's access control does not allow the call.
        """
        deadline = self._clock() + self._transaction_seconds
        while True:
            self.began = self._clock()
            try:
                with unwrap_kafka_errors():
                    return call()
            except KafkaException as exception:
                error = exception.args[0]
                required = verdict(step, error)
                log.warning("the transaction step %r failed: %s (%s)", step.value, error, required.name.lower())
                if required is not ErrorVerdict.REPEAT or self._clock() >= deadline:
                    raise error_for(step, error) from exception

    def commit(self, producer: Producer, offsets: list[TopicPartition], group_metadata: Any) -> CommitTiming:
        """Send the offsets, if there are any, flush the records, and commit. Raises the same errors as `run`."""
        if offsets:
            self.run(
                SessionStep.SEND_OFFSETS,
                lambda: producer.send_offsets_to_transaction(offsets, group_metadata, CALL_SECONDS),
            )
        began = self._clock()
        previous_unsent = inf
        unsent = 1
        with contextlib.suppress(KafkaException), unwrap_kafka_errors():  # the commit reports what a flush may raise
            while 0 < (unsent := producer.flush(STUCK_SECONDS)) < previous_unsent:
                self.began = self._clock()
                previous_unsent = unsent
        seconds = STUCK_CALL_SECONDS if unsent else CALL_SECONDS
        sent = self._clock()
        self.run(SessionStep.COMMIT, lambda: producer.commit_transaction(seconds))
        now = self._clock()
        return CommitTiming(now - began, now - sent)


def error_for(step: SessionStep, error: KafkaError) -> Aborted | NotAllowed:
    """Return the exception to raise for a Kafka error at a step of a transaction."""
    required = verdict(step, error)
    if required is ErrorVerdict.REFUSED:
        hint = roles.hint(RIGHTS_HINT, roles.running_role())
        return NotAllowed(f"the broker denies access at the transaction step {step.value!r}: {error}", hint)
    raised = ERROR_TYPES.get(required, Aborted)(str(error))
    if isinstance(raised, RecordFailed):
        raised.code = error.code()
    return raised
