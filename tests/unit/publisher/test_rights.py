"""Which rights are missing, and how that is said."""

from confluent_kafka.admin import AclOperation

from publisher import rights
from publisher.kafka import KafkaSettings
from publisher.rights import DESCRIBE, READ, WRITE, Right


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


def test_the_error_names_the_right_and_grants_it() -> None:
    settings = KafkaSettings(bootstrap_servers="b:1")
    error = rights.refused(settings, [Right(WRITE, "topic", "out"), Right(READ, "group", "g")])
    assert str(error) == "the broker refuses: no right to Write on topic 'out'; no right to Read on group 'g'"
    assert "--bootstrap-server b:1 --add --allow-principal User:NAME --operation Write --topic out" in error.hint
    assert error.exit_code == 3
    prefixed = rights.grants(settings, [Right(WRITE, "transactional-id", "n.*")])
    assert prefixed.endswith("--transactional-id n. --resource-pattern-type prefixed")
