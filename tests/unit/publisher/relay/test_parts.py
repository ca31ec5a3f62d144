"""The small pure parts of the relay."""

from collections.abc import Sequence

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given, settings
from hypothesis import strategies as st

from publisher.errors import Fatal
from publisher.kafka.clients import unwrap_kafka_errors
from publisher.kafka.topics import Bounds, copied_config, retention_seconds
from publisher.relay.checkpoints import SOURCE_SNAPSHOT, CheckpointKey, encode_key, parse_key
from publisher.relay.rate_limit import RateLimit
from publisher.relay.settings import RelaySettings
from publisher.relay.topic_mapping import clashes, selected

WORDS = st.text(min_size=1, max_size=10)


@settings(max_examples=50)
@given(WORDS, WORDS, WORDS, st.integers(0, 2**31 - 1))
def test_a_checkpoint_key_is_parsed_as_it_was_encoded(relay: str, region: str, topic: str, partition: int) -> None:
    key = CheckpointKey(relay, region, topic, partition)
    assert parse_key(encode_key(*key)) == key
    assert parse_key(encode_key(relay, SOURCE_SNAPSHOT)) == (relay,)
    assert parse_key(encode_key(relay)) == relay


@pytest.mark.parametrize("key", [b"a/b", b"a/b/c/d", b"a/b/c/1/e", "ü".encode()])
def test_other_keys_are_no_checkpoints(key: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_key(key)


def test_a_rate_limit_allows_its_rate() -> None:
    limit = RateLimit(1_000)
    assert limit.add_bytes(500, now=0.0) == 0.5
    assert limit.add_bytes(500, now=0.0) == 1.0
    assert limit.add_bytes(100, now=10.0) == pytest.approx(0.1)
    assert RateLimit(0).add_bytes(10**9, now=0.0) == 0.0


def settings_for(*topics: str, target: str = "{topic}", groups: Sequence[str] = ()) -> RelaySettings:
    return RelaySettings.model_validate(
        {
            "name": "r",
            "source": {"region": "eu", "bootstrap_servers": "a:1", "topics": list(topics), "groups": groups},
            "destination": {"region": "us", "bootstrap_servers": "b:1", "topic": target},
        }
    )


def test_topics_are_named_or_match() -> None:
    topics = ["b.scores", "a.scores", "a.dead"]
    assert selected(settings_for("named", "^.*scores$", "^a"), topics) == ["named", "a.dead", "a.scores", "b.scores"]


def test_two_topics_are_not_copied_into_one() -> None:
    assert clashes(settings_for("a", "b"), ["a", "b"]) == []
    assert "both be copied into all" in clashes(settings_for("a", "b", target="all"), ["a", "b"])[0]
    assert "checkpoint topic" in clashes(settings_for("a", target="scorestream.checkpoints"), ["a"])[0]


def test_a_topic_is_created_like_its_source_with_room_for_the_headers() -> None:
    source = {"retention.ms": "5", "max.message.bytes": "1000", "min.insync.replicas": "2"}
    assert copied_config(source, 24) == {"retention.ms": "5", "max.message.bytes": "1024"}


def test_an_offset_is_bounded_by_the_log() -> None:
    bounds = Bounds(5, 9)
    assert [bounds.offset(to, "t[0]") for to in ("earliest", "latest", "5", "9")] == [5, 9, 5, 9]
    for wrong in ("4", "10", "now", "-1"):
        with pytest.raises(Fatal, match="holds the offsets 5 to 9"):
            bounds.offset(wrong, "t[0]")


def test_the_retention_of_a_topic_is_known_if_it_deletes_by_age() -> None:
    configs = {
        "week": {"cleanup.policy": "delete", "retention.ms": "604800000"},
        "both": {"cleanup.policy": "compact,delete", "retention.ms": "1000"},
        "compacted": {"cleanup.policy": "compact", "retention.ms": "604800000"},
        "for ever": {"cleanup.policy": "delete", "retention.ms": "-1"},
        "not told": {},
    }
    assert retention_seconds(configs) == {"week": 604_800.0, "both": 1.0}


def test_the_error_of_the_client_behind_one_of_python_is_raised() -> None:
    fatal = KafkaException(KafkaError(KafkaError._FENCED))
    with pytest.raises(KafkaException) as caught, unwrap_kafka_errors():
        raise SystemError("<class 'logging.LogRecord'> returned a result with an exception set") from fatal
    assert caught.value is fatal
    with pytest.raises(SystemError, match="of its own"), unwrap_kafka_errors():
        raise SystemError("of its own")
