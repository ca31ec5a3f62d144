"""The error types of the product's Kafka work, and the exit codes of its commands.

Callers decide by the class of an error, never by its message. The error for an invalid event is not defined here, but in the
scorer (`Poison`).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from model_registry.redaction import redacted

FINDING = 1
USAGE = 2
REFUSED = 3
UNREACHABLE = 4
INTERRUPTED = 130
"""The exit codes of the commands.

FINDING: a check or an audit found a fault. USAGE: wrong usage or configuration. REFUSED: a broker, or a safety check of the
product, rejects the action. UNREACHABLE: a server does not answer. INTERRUPTED: Ctrl-C or a closed pipe.
"""


class Retriable(Exception):
    """A failure after which the same call may succeed."""


class Aborted(Exception):
    """The open transaction must not be committed, or the outcome of its commit is unknown.

    The caller must recover the session, and read again from the committed offsets.
    """


class Abandoned(Aborted):
    """A stop was requested, and the batch in progress takes too long.

    The batch is not published. Earlier commits stay valid.
    """


class Evicted(Aborted):
    """The consumer group rejects the offsets of this member, because the group has rebalanced or has removed the member.

    The next poll of the consumer shows which of the two has happened.
    """


class RecordFailed(Aborted):
    """A record of the transaction has failed, but it is not known which one. `code` is the broker's error code, if known."""

    code: int | None = None


class RecordRejected(RecordFailed):
    """The broker will never accept one or more records: too large, invalid, or with a timestamp out of bounds.

    Attributes:
        records: the records that may be rejected, as they were passed to the session; empty if unknown.
        certain: whether all of `records` are rejected. Otherwise at least one of them is.
        one_or_all: True if, in each partition, the broker rejects either exactly one of `records` or all of them. False if this
            is not known.
    """

    def __init__(
        self, message: str, records: Sequence[tuple[Any, ...]] = (), *, certain: bool = False, one_or_all: bool = False
    ) -> None:
        super().__init__(message)
        self.records = records
        self.certain = certain
        self.one_or_all = one_or_all


class MemberLost(Aborted):
    """This consumer is no longer a member of its group and cannot rejoin. The process must create a new consumer."""


class Fenced(Aborted):
    """Another producer has initialised the transactional.id of this producer.

    If the error repeats, two running processes are configured with the same transactional.id.
    """


class Fatal(Exception):
    """The process cannot continue. Nothing is lost: the next process reads uncommitted events again.

    Credentials in URLs are masked in the message and in the hint.

    Attributes:
        hint: the remedy in one line; empty if there is none.
        exit_code: the exit code of the command.
    """

    def __init__(self, message: str, hint: str = "", exit_code: int = UNREACHABLE) -> None:
        super().__init__(redacted(message))
        self.hint = redacted(hint)
        self.exit_code = exit_code


class NotAllowed(Fatal):
    """The broker's access control does not allow the call. The command ends with exit code 3."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint, REFUSED)


@contextmanager
def retriable_as_fatal(hint: str, context: str = "") -> Iterator[None]:
    """Convert a Retriable that the block raises into Fatal with exit code 4, for commands that do not retry.

    Args:
        hint: the hint of the Fatal.
        context: text that is put before the message of the Retriable.
    """
    try:
        yield
    except Retriable as error:
        raise Fatal(f"{context}{error}", hint) from error
