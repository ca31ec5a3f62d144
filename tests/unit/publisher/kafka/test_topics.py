"""Queries about topics, groups and rights: missing ones, and the errors if a broker refuses or does not answer."""

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, create_autospec

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic

from publisher.errors import Fatal, NotAllowed, Retriable
from publisher.kafka import acls
from publisher.kafka import clients as kafka
from publisher.kafka.acls import DESCRIBE, READ, WRITE, Right
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.error_codes import REFUSED
from publisher.kafka.groups import NO_PARTITION, ConsumerGroups, GroupPosition, GroupReader
from publisher.kafka.partitions import Partition
from publisher.kafka.topics import HIDDEN, Topics
from publisher.transactions.state_machine import ErrorVerdict, SessionStep, verdict


def test_a_client_that_cannot_reach_the_controller_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    failing, working = MagicMock(), MagicMock()
    timed_out = KafkaException(KafkaError(KafkaError._TIMED_OUT, "Failed while waiting for controller"))
    failing.describe_cluster.return_value.result.side_effect = timed_out
    working.describe_cluster.return_value.result.return_value.cluster_id = "c1"
    clients = [failing, working]
    monkeypatch.setattr(kafka, "admin", lambda *_: clients.pop(0))
    topics_client = Topics(KafkaSettings(bootstrap_servers="nowhere:9092"), "relay", "eu (source)", 1.0)
    with pytest.raises(Retriable, match="waiting for controller"):
        topics_client.id()
    assert topics_client.id() == "c1"


SETTINGS = KafkaSettings(bootstrap_servers="nowhere:9092")
FLIGHTS: list[Partition] = [("flights", number) for number in range(5)]

MakeReader = Callable[[set[int]], GroupReader]


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> MakeReader:
    """Return a function that creates a reader of a group with undecided positions in these partitions."""

    def make_reader(undecided: set[int]) -> GroupReader:
        def committed(partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:  # noqa: ARG001
            if undecided & {p.partition for p in partitions}:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            return partitions

        consumer = create_autospec(Consumer, instance=True)
        consumer.committed.side_effect = committed
        monkeypatch.setattr(kafka, "reader", lambda *_, **__: consumer)
        return GroupReader(SETTINGS, "c", "g", decided=True)

    return make_reader


def test_if_all_positions_are_decided_none_is_requested_singly(reader: MakeReader) -> None:
    assert reader(set()).undecided(FLIGHTS, singly=False) == []
    assert reader({7}).undecided([], singly=False) == []


def test_decided_positions_are_omitted_from_later_requests(reader: MakeReader) -> None:
    group = reader({1, 3})
    undecided = group.undecided(FLIGHTS, singly=False)
    assert undecided == FLIGHTS
    for expected in ([2, 3, 4, 1], [4, 1, 3], [3, 1], [1, 3]):
        undecided = group.undecided(undecided, singly=True)
        assert [number for _, number in undecided] == expected


def test_an_unavailable_coordinator_is_an_error(reader: MakeReader) -> None:
    with pytest.raises(KafkaException, match="coordinator does not answer"):
        reader({NO_PARTITION}).undecided(FLIGHTS, singly=False)


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, NotAllowed, "no right to Describe on group 'g'"),
        (KafkaError._TRANSPORT, Retriable, "eu does not answer"),
    ],
)
def test_a_refusal_names_the_right(code: int, error: type[Exception], message: str) -> None:
    admin = MagicMock()
    admin.describe_consumer_groups.return_value["g"].result.side_effect = KafkaException(KafkaError(code))
    with pytest.raises(error, match=message):
        ConsumerGroups(admin, SETTINGS, "eu", 1.0).members("g")


def test_a_group_that_does_not_exist_has_no_members() -> None:
    admin = MagicMock()
    admin.describe_consumer_groups.return_value["g"].result.side_effect = KafkaException(
        KafkaError(KafkaError.GROUP_ID_NOT_FOUND)
    )
    assert ConsumerGroups(admin, SETTINGS, "eu", 1.0).members("g") == []


def test_a_position_without_metadata_is_moved_too() -> None:
    admin = MagicMock()
    ConsumerGroups(admin, SETTINGS, "eu", 1.0).move("g", [GroupPosition("flights", 0, 7), GroupPosition("flights", 1, 8, "m")])
    (((request,),), _) = admin.alter_consumer_group_offsets.call_args
    assert [(p.partition, p.offset, p.metadata or "") for p in request.topic_partitions] == [(0, 7, ""), (1, 8, "m")]


def test_required_rights_that_are_not_granted_are_missing() -> None:
    needed = {
        "a": frozenset({READ, WRITE}),
        "b": frozenset({DESCRIBE}),
        "c": frozenset({WRITE}),
        "d": frozenset[AclOperation](),
    }
    rights = {"a": frozenset({READ, DESCRIBE}), "b": frozenset({WRITE}), "c": None}
    assert acls.missing(needed, rights) == [Right(WRITE, "topic", "a")]
    assert acls.missing({"b": frozenset({DESCRIBE})}, {"b": frozenset[AclOperation]()}) == [Right(DESCRIBE, "topic", "b")]
    assert acls.missing({"unknown": frozenset({READ})}, {}) == []


def cluster_with(**errors: int) -> Topics:
    """Return a cluster that answers for each topic with this error code."""
    admin = MagicMock()
    answers: dict[str, Future[Any]] = {name: Future() for name in errors}
    for name, code in errors.items():
        answers[name].set_exception(KafkaException(KafkaError(code)))
    admin.describe_topics.return_value = answers
    return Topics(SETTINGS, "c", "eu", 1.0, admin)


def test_an_absent_topic_is_distinguished_from_one_without_the_right_to_describe() -> None:
    errors = {"absent": KafkaError.UNKNOWN_TOPIC_OR_PART, "invisible": KafkaError.TOPIC_AUTHORIZATION_FAILED}
    cluster = cluster_with(**errors)
    assert cluster.hidden(errors) == {"invisible"}
    assert cluster.allowed(dict.fromkeys(errors, HIDDEN)) == {}
    with pytest.raises(NotAllowed) as refusal:
        cluster.allowed(dict.fromkeys(errors, frozenset({READ, WRITE})))
    assert str(refusal.value) == (
        "the broker denies access: no right to Read on topic 'invisible'; no right to Write on topic 'invisible'; "
        "this user has no right to see whether these topics exist: invisible"
    )


@pytest.mark.parametrize("step", [SessionStep.BEGIN, SessionStep.SEND_OFFSETS, SessionStep.COMMIT, SessionStep.RECOVER])
def test_no_step_is_repeated_without_the_right_to_it(step: SessionStep) -> None:
    for code in REFUSED:
        assert verdict(step, KafkaError(code)) is ErrorVerdict.REFUSED


def test_the_error_names_the_right_and_grants_it() -> None:
    settings = KafkaSettings(bootstrap_servers="b:1")
    error = acls.refused(settings, [Right(WRITE, "topic", "out"), Right(READ, "group", "g")])
    assert str(error) == "the broker denies access: no right to Write on topic 'out'; no right to Read on group 'g'"
    assert "--bootstrap-server b:1 --add --allow-principal User:NAME --operation Write --topic out" in error.hint
    assert error.exit_code == 3
    prefixed = acls.grants(settings, [Right(WRITE, "transactional-id", "n.*")])
    assert prefixed.endswith("--transactional-id n. --resource-pattern-type prefixed")


def test_topics_are_created_in_a_request_each() -> None:
    """A broker limits the partitions of a whole request, not only of a topic."""
    admin = MagicMock()
    admin.create_topics.side_effect = lambda plans, **_: {plan.topic: MagicMock() for plan in plans}
    Topics(SETTINGS, "c", "eu", 1.0, admin).create_all([NewTopic(f"t{number}", 3_000) for number in range(4)])
    requests = [[plan.topic for plan in call.args[0]] for call in admin.create_topics.call_args_list]
    assert requests == [["t0"], ["t1"], ["t2"], ["t3"]]


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (KafkaError.POLICY_VIOLATION, "limits partitions"),
        (KafkaError.INVALID_PARTITIONS, "rejects this number of partitions"),
        (KafkaError.UNKNOWN, "see the broker's log"),
    ],
)
def test_a_topic_that_a_broker_does_not_create_is_no_missing_right(code: int, hint: str) -> None:
    admin, answer = MagicMock(), MagicMock()
    answer.result.side_effect = KafkaException(KafkaError(code, "Excessively large number of partitions per request."))
    admin.create_topics.return_value = {"t": answer}
    with pytest.raises(Fatal, match="cannot create topic t: Excessively large number") as raised:
        Topics(SETTINGS, "c", "eu", 1.0, admin).create("t", 10_001, {})
    assert not isinstance(raised.value, NotAllowed)
    assert hint in raised.value.hint


def test_the_configuration_of_a_topic_that_the_broker_does_not_know_yet_is_requested_again() -> None:
    unknown: Future[Any] = Future()
    existing: Future[Any] = Future()
    unknown.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
    existing.set_result({"retention.ms": SimpleNamespace(value="1000")})
    answers = iter([existing, unknown, existing])
    admin = create_autospec(AdminClient, instance=True)
    admin.describe_configs.side_effect = lambda resources, **_: {resource: next(answers) for resource in resources}
    broker = Topics(SETTINGS, "scorer", "the broker", 60.0, admin)
    assert broker.configs(["old", "new"]) == {"old": {"retention.ms": "1000"}, "new": {"retention.ms": "1000"}}
    assert [len(call.args[0]) for call in admin.describe_configs.call_args_list] == [2, 1]


def test_the_configuration_of_a_topic_that_stays_unknown_is_an_error() -> None:
    unknown: Future[Any] = Future()
    unknown.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
    admin = create_autospec(AdminClient, instance=True)
    admin.describe_configs.side_effect = lambda resources, **_: dict.fromkeys(resources, unknown)
    with pytest.raises(Retriable, match="Unknown topic or partition"):
        Topics(SETTINGS, "scorer", "the broker", 0.0, admin).configs(["gone"])
