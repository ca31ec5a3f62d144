"""One Kafka broker for all processes of a test run. The main process starts the broker when a worker first asks for it."""

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Client, Listener
from pathlib import Path

from publisher.errors import Fatal
from scorer.demo.broker.embedded import EmbeddedBroker

SOCKET = "SCORESTREAM_TEST_BROKER"
"""The environment variable with the path of the socket on which the main process answers."""
CLOSE = "close"


@dataclass(frozen=True, slots=True)
class Broker:
    """A running Apache Kafka, which tests must not stop."""

    bootstrap_servers: str


class BrokerOnDemand:
    """Answers the requests of `shared` with the broker's address, and starts the broker at the first request."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="scorestream-shared-")
        self._path = str(Path(self._folder.name, "broker"))
        os.environ[SOCKET] = self._path
        self._listener = Listener(self._path, "AF_UNIX")
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def _answer(self) -> None:
        broker = EmbeddedBroker(heap_mb=1_024)
        started = False
        with contextlib.ExitStack() as closing:
            while True:
                with self._listener.accept() as asking:
                    if asking.recv() == CLOSE:
                        return
                    try:
                        if not started:
                            subprocess.run([sys.executable, "-m", "scorer.demo.broker"], check=False)
                            closing.enter_context(broker)
                            started = True
                    except Fatal as error:
                        asking.send((None, str(error)))
                    else:
                        asking.send((broker.bootstrap_servers, ""))

    def close(self) -> None:
        with Client(self._path, "AF_UNIX") as asking:
            asking.send(CLOSE)
        self._thread.join()
        self._listener.close()
        self._folder.cleanup()


def shared() -> Iterator[Broker]:
    """Yield the broker that all processes of this test run share; without a main process, start a broker for this process."""
    if SOCKET not in os.environ:
        with EmbeddedBroker() as alone:
            yield Broker(alone.bootstrap_servers)
        return
    with Client(os.environ[SOCKET], "AF_UNIX") as asking:
        asking.send("broker")
        servers, fault = asking.recv()
    assert servers, fault
    yield Broker(servers)
