"""Fixtures of tests with a real broker: one broker for all processes of the run, and separate names and topics per test."""

import os
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.scorer.rig import MakeRig, Rig
from tests.support import shared_broker, trial_outcomes
from tests.support.shared_broker import Broker
from tests.support.waiting import until

MakeTopics = Callable[..., list[str]]
ANSWER_SECONDS = 30.0


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """Provide a running Apache Kafka. A test that kills or pauses its broker starts a separate broker instead."""
    yield from shared_broker.shared()


@pytest.fixture(scope="session")
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> str:
    """Return a name that no other test has, for topics, groups and transactional ids: `<test>-<8 hex digits>`."""
    return f"{re.sub(r'[^a-zA-Z0-9_-]', '-', request.node.name)[:60]}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def make_topics(admin: AdminClient, unique: str) -> MakeTopics:
    """Return a function that creates topics and returns their full names.

    `make_topics("in", "out", partitions=6, config={})` creates `<unique>.in` and `<unique>.out`. The function waits until every
    partition has a leader, because a broker's metadata shows a new topic later than the controller creates the topic.
    """

    def have_leaders(topics: list[str], partitions: int) -> bool:
        metadata = admin.list_topics(timeout=ANSWER_SECONDS).topics
        leaders = [partition.leader for name in topics if name in metadata for partition in metadata[name].partitions.values()]
        return len(leaders) == len(topics) * partitions and all(leader >= 0 for leader in leaders)

    def make(*names: str, partitions: int = 6, config: dict[str, str] | None = None) -> list[str]:
        topics = [f"{unique}.{name}" for name in names]
        futures = admin.create_topics([NewTopic(topic, partitions, 1, config=config or {}) for topic in topics])
        for future in futures.values():
            future.result(ANSWER_SECONDS)
        until(lambda: have_leaders(topics, partitions), "the leaders of new topics")
        return topics

    return make


@pytest.fixture(scope="session")
def accepted_trials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the outcomes of version trials in earlier tests of this run (see `trial_outcomes`)."""
    folder = tmp_path_factory.getbasetemp()
    return (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "accepted-trials"


@pytest.fixture
def make_rig(broker: Broker, tmp_path: Path, unique: str, accepted_trials: Path) -> Iterator[MakeRig]:
    """Return a function that creates a `Rig`: registry, configuration, topics and commands for one scorer.

    `make_rig(region="eu-west", input={...})` changes these settings of the configuration. All processes that a rig started are
    ended after the test.
    """
    rigs: list[Rig] = []
    cache = tmp_path / "cache"

    def make(**overrides: Any) -> Rig:
        trial_outcomes.store(cache, accepted_trials)
        rigs.append(Rig(broker.bootstrap_servers, tmp_path, unique, **overrides))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()
    trial_outcomes.collect(cache, accepted_trials)
