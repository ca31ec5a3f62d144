"""The error families that decide what happens next.

Code switches on these classes, never on message text. All are about Kafka; one bad event is the scorer's `Poison`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from model_registry.redaction import redacted

FINDING, USAGE, REFUSED, UNREACHABLE, INTERRUPTED = 1, 2, 3, 4, 130
"""Exit codes of the commands: a check or a count found something wrong; usage or configuration; refused; unreachable; Ctrl-C or
a closed pipe."""


class Retriable(Exception):
    """The same call may succeed when it is made again."""


class Aborted(Exception):
    """The open transaction must not commit, or nobody knows whether it did: recover from the committed offsets."""


class Evicted(Aborted):
    """The group refuses this member: it has other assignments by now, or has given it up. What it says next decides."""


class RecordFailed(Aborted):
    """A record of the transaction has failed. `code` is the broker's, where it has told one: which record, it does not say."""

    code: int | None = None


class RecordRejected(RecordFailed):
    """The broker takes one record or more in no case: too large, invalid, or of a time out of bounds.

    `records` are the very objects in question that were to be published; empty where nobody has told. `certain`: the broker
    refuses each of them. `one_or_all`: of those of a partition it refuses one, or each.
    """

    def __init__(
        self, message: str, records: Sequence[tuple[Any, ...]] = (), *, certain: bool = False, one_or_all: bool = False
    ) -> None:
        super().__init__(message)
        self.records = records
        self.certain = certain
        self.one_or_all = one_or_all


class MemberLost(Aborted):
    """This consumer is no member of its group any more and will not be one again: another consumer has to join."""


class Fenced(Aborted):
    """Another producer took this transactional.id. Once is recovered from; repeated it means two processes share a replica."""


class Fatal(Exception):
    """The process cannot go on. Nothing is lost: what was not committed is read again by whoever comes next. `hint` says the
    way out in one line; `exit_code` is what the command ends with (see scorer/README.md). Credentials in URLs are masked."""

    def __init__(self, message: str, hint: str = "", exit_code: int = UNREACHABLE) -> None:
        super().__init__(redacted(message))
        self.hint = redacted(hint)
        self.exit_code = exit_code


class NotAllowed(Fatal):
    """The broker's access control does not allow what was tried. Ends with 3."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint, REFUSED)


@contextmanager
def retriable_as_fatal(hint: str, said: str = "") -> Iterator[None]:
    """For who asks once: Retriable is raised as Fatal (4), with this hint, and with `said` before its message."""
    try:
        yield
    except Retriable as error:
        raise Fatal(f"{said}{error}", hint) from error
