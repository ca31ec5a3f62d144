"""The topics that `--create` makes."""

from scorer import topics
from tests.unit.scorer.minimal import minimal


def test_the_broker_stamps_records_that_have_no_events_time() -> None:
    settings = minimal()
    made = {topic.topic: topic.config or {} for topic in topics.missing(settings, {}, 3)}
    stamped = {name for name, config in made.items() if config.get("message.timestamp.type") == "LogAppendTime"}
    assert stamped == {settings.status_topic, settings.swaps_topic, settings.replayed_topic, settings.rollouts_topic}
    assert made[settings.swaps_topic]["retention.ms"] == "-1"
