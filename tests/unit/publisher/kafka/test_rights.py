"""Which rights are missing, and how that is said."""

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AclOperation

from publisher.kafka import rights
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.error_codes import REFUSED
from publisher.kafka.rights import DESCRIBE, READ, WRITE, Right
from publisher.session.states import Step, Verdict, verdict


def test_what_is_needed_and_not_allowed_is_missing() -> None:
    needed = {
        "a": frozenset({READ, WRITE}),
        "b": frozenset({DESCRIBE}),
        "c": frozenset({WRITE}),
        "d": frozenset[AclOperation](),
    }
    found = {"a": frozenset({READ, DESCRIBE}), "b": frozenset({WRITE}), "c": None}
    assert rights.missing(needed, found) == [Right(WRITE, "topic", "a")]
    assert rights.missing({"b": frozenset({DESCRIBE})}, {"b": frozenset[AclOperation]()}) == [Right(DESCRIBE, "topic", "b")]
    assert rights.missing({"unknown": frozenset({READ})}, {}) == []


@pytest.mark.parametrize("step", [Step.BEGIN, Step.SEND_OFFSETS, Step.COMMIT, Step.RECOVER])
def test_no_step_is_repeated_without_the_right_to_it(step: Step) -> None:
    for code in REFUSED:
        assert verdict(step, KafkaError(code)) is Verdict.REFUSED


def test_the_error_names_the_right_and_grants_it() -> None:
    settings = KafkaSettings(bootstrap_servers="b:1")
    error = rights.refused(settings, [Right(WRITE, "topic", "out"), Right(READ, "group", "g")])
    assert str(error) == "the broker refuses: no right to Write on topic 'out'; no right to Read on group 'g'"
    assert "--bootstrap-server b:1 --add --allow-principal User:NAME --operation Write --topic out" in error.hint
    assert error.exit_code == 3
    prefixed = rights.grants(settings, [Right(WRITE, "transactional-id", "n.*")])
    assert prefixed.endswith("--transactional-id n. --resource-pattern-type prefixed")
