"""Transactional ids of different names, replicas and roles are never equal."""

from itertools import product

from publisher.relay.settings import RelaySettings
from publisher.transactions.transactional_ids import transactional_ids
from tests.unit.scorer.minimal import minimal

NAMES = ("flights", "flights.eu", "flights.eu.0", "flights.scorer", "scorer", "relay", "replay")
REPLICAS = ("0", "eu.0", "0.0", "1", "replay", "check", "checkpoints", "relay")


def relay(name: str) -> RelaySettings:
    side = {"bootstrap_servers": "127.0.0.1:1"}
    source = {**side, "region": "eu", "topics": ["flights.scores"]}
    return RelaySettings.model_validate({"name": name, "source": source, "destination": {**side, "region": "us"}})


def test_no_two_processes_share_an_id() -> None:
    scorers = [minimal(name=name, replica=replica) for name, replica in product(NAMES, REPLICAS)]
    ids = [
        transactional_id
        for scorer in scorers
        for transactional_id in transactional_ids(scorer.transactional_prefix(scorer.owner))
    ]
    ids += [transactional_id for name in NAMES for lane in range(2) for transactional_id in relay(name).transactional_ids(lane)]
    assert len(set(ids)) == len(ids)


def test_rights_by_prefix_are_those_of_one_name() -> None:
    for name, other_name in product(NAMES, NAMES):
        other_scorer = minimal(name=other_name, replica="eu.0")
        assert other_scorer.transactional_prefix(other_scorer.owner).startswith(f"{name}/scorer/") == (name == other_name)
