"""The request to move a channel: its actor, time and reason, and the conditions under which the move may take place."""

import getpass
import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime

from model_registry.errors import BadReference
from model_registry.oci import digests
from model_registry.signing.keys import PrivateKey

MAX_TEXT = 4096  # characters of an actor or a reason


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """The parameters of a move of a channel, except the version to which the channel moves.

    Attributes:
        actor: The person or program that moves the channel, for the history.
        reason: Free text for the history.
        time: The time of the move; the history keeps it in UTC with milliseconds.
        expected_digest: The manifest digest that the version must have; None accepts any.
        expected_revision: The revision that the channel must have before the move; None accepts any.
        evidence: A JSON document that is stored with the history entry.
        key: The private key that signs the move; None leaves the move unsigned.
    """

    actor: str
    reason: str
    time: datetime
    expected_digest: str | None = None
    expected_revision: int | None = None
    evidence: bytes | None = None
    key: PrivateKey | None = None

    def check(self) -> None:
        """Raise BadReference if the actor or reason is too long, or the expected digest is malformed."""
        for name, text in (("actor", self.actor), ("reason", self.reason)):
            if len(text) > MAX_TEXT:
                raise BadReference(f"the {name} has {len(text)} characters; the limit is {MAX_TEXT}", "write a shorter text")
        if self.expected_digest is not None and not digests.is_digest(self.expected_digest):
            raise BadReference(
                f"{self.expected_digest!r} is not a valid digest", "a digest is sha256: and 64 hexadecimal digits"
            )

    @property
    def recorded_time(self) -> datetime:
        """The time in UTC, cut to milliseconds as in the history."""
        return self.time.astimezone(UTC).replace(microsecond=self.time.microsecond // 1_000 * 1_000)


def current_actor() -> str:
    """Return the actor of moves by this process, as `user@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # containers run as users that have no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
