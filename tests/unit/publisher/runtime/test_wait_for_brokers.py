"""A start that waits for what is away hears a stop, however quickly each try fails."""

import threading

import pytest

from publisher.errors import Aborted
from publisher.kafka.clients import KafkaSettings
from publisher.runtime.dependencies import DependencyUnavailable, Outages
from publisher.runtime.wait_for_brokers import DependencyWaiter


def test_a_stop_is_heard_where_each_try_fails_at_once() -> None:
    stopping = threading.Event()
    waiting = DependencyWaiter(KafkaSettings(bootstrap_servers="b:1"), "n.a", lambda: None, Outages(), stopping)

    def step() -> None:
        stopping.set()
        raise DependencyUnavailable("registry", "not there", "wait")

    with pytest.raises(Aborted):
        waiting.repeated(step)
