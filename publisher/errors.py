"""The error types of the product's Kafka work, and the exit codes of its commands.

Code decides by these classes, never by message text. One invalid event is the scorer's `Poison`.
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
"""Exit codes: a check or count found a fault; wrong usage or configuration; rejected; unreachable; Ctrl-C or a closed pipe."""


class Retriable(Exception):
    """A failure after which the same call may succeed."""


class Aborted(Exception):
    """The open transaction must not commit, or its outcome is unknown: recover from the committed offsets."""


class Evicted(Aborted):
    """The group has rebalanced or removed this member, and rejects its offsets. The next poll shows which."""


class RecordFailed(Aborted):
    """A record of the transaction has failed; the broker does not report which. `code` is the broker's error code, if known."""

    code: int | None = None


class RecordRejected(RecordFailed):
    """The broker rejects one or more records for good: too large, invalid, or with a time out of bounds.

    Attributes:
        records: the candidates, as the objects that were passed to the session; empty if they are unknown.
        certain: whether the broker rejects each of them.
        one_or_all: whether the broker rejects either one record of a partition or all of its records.
    """

    def __init__(
        self, message: str, records: Sequence[tuple[Any, ...]] = (), *, certain: bool = False, one_or_all: bool = False
    ) -> None:
        super().__init__(message)
        self.records = records
        self.certain = certain
        self.one_or_all = one_or_all


class MemberLost(Aborted):
    """This consumer is no longer a member of its group and cannot rejoin: another consumer has to join."""


class Fenced(Aborted):
    """Another producer has taken this transactional.id. If that repeats, two processes share a replica."""


class Fatal(Exception):
    """The process cannot continue. Nothing is lost: the next process reads uncommitted events again.

    Credentials in URLs are masked.

    Attributes:
        hint: the remedy in one line.
        exit_code: the exit code of the command.
    """

    def __init__(self, message: str, hint: str = "", exit_code: int = UNREACHABLE) -> None:
        super().__init__(redacted(message))
        self.hint = redacted(hint)
        self.exit_code = exit_code


class NotAllowed(Fatal):
    """The broker's access control does not allow the call. The command ends with 3."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint, REFUSED)


@contextmanager
def retriable_as_fatal(hint: str, context: str = "") -> Iterator[None]:
    """Raise Retriable as Fatal (4) with this hint, for commands that do not retry. `context` precedes its message."""
    try:
        yield
    except Retriable as error:
        raise Fatal(f"{context}{error}", hint) from error
