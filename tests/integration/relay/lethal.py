"""`python -m tests.integration.relay.lethal STEP N run CONFIG ...`: the installed command, killed in its n-th transaction.

Transactions are counted over all lanes; the first is the registration.
"""

import os
import signal
import sys
import threading
from typing import Any

from confluent_kafka import Producer

from publisher import cli
from publisher.kafka import clients as kafka_clients

STEPS = ("produced", "flushed", "committing", "committed")
COMMITTING_SECONDS = 0.001


class LethalProducer(Producer):
    """Counts transactions, and ends the process at its step."""

    step = ""
    at = 0
    begun = 0

    def begin_transaction(self, *arguments: Any) -> None:
        LethalProducer.begun += 1
        self.number = LethalProducer.begun
        super().begin_transaction(*arguments)

    def flush(self, *arguments: Any) -> int:
        self._reach("produced")
        return super().flush(*arguments)

    def commit_transaction(self, *arguments: Any) -> None:
        self._reach("flushed")
        if self.number == self.at and self.step == "committing":
            threading.Timer(COMMITTING_SECONDS, die).start()
        super().commit_transaction(*arguments)
        self._reach("committed")

    def _reach(self, step: str) -> None:
        if self.number == self.at and self.step == step:
            die()


def die() -> None:
    """As the kernel does it."""
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    LethalProducer.step, LethalProducer.at = sys.argv[1], int(sys.argv[2])
    del sys.argv[1:3]
    setattr(kafka_clients, "Producer", LethalProducer)  # noqa: B010 - the module does not offer it
    cli.main()
