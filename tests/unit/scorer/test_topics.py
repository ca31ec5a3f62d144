"""The topics that `--create` creates."""

from typing import Any

import pytest

from publisher.kafka.acls import READ, WRITE
from publisher.relay.transform import HEADER_BYTES
from scorer import topics
from scorer.settings.shadow_worker import ShadowWorkerSettings
from tests.unit.scorer.minimal import minimal


def test_the_broker_stamps_records_that_have_no_events_time() -> None:
    settings = minimal()
    configs = {topic.topic: topic.config or {} for topic in topics.missing(settings, {}, 3)}
    stamped = {name for name, config in configs.items() if config.get("message.timestamp.type") == "LogAppendTime"}
    logs = {settings.rollouts_topic, settings.runs_topic}
    assert stamped == {settings.status_topic, settings.swaps_topic, settings.replayed_topic, *logs}
    assert {configs[name]["cleanup.policy"] for name in logs} == {"compact"}
    assert configs[settings.swaps_topic]["retention.ms"] == "-1"


def test_the_feature_log_is_required_with_as_many_partitions_as_the_input() -> None:
    settings = minimal(features={"topic": "log"})
    assert topics.required(settings)["log"] == frozenset({WRITE})
    described = {"in": topics.DescribedTopic("in", 5, 1_048_588)}
    widths = {topic.topic: topic.num_partitions for topic in topics.missing(settings, described, 3)}
    assert widths["log"] == widths["out"] == 5


@pytest.mark.parametrize(("limit", "is_reported", "wrong"), [(1_024, True, True), (1_025, True, False), (1_024, False, False)])
def test_an_output_topic_that_accepts_no_score_is_a_fault(limit: int, is_reported: bool, wrong: bool) -> None:
    settings = minimal()
    described = {name: topics.DescribedTopic(name, 1, 1_048_588) for name in topics.required(settings)}
    described[settings.dead_letter.topic] = topics.DescribedTopic(settings.dead_letter.topic, 1, 2_000_000)
    described[settings.output.topic] = topics.DescribedTopic(settings.output.topic, 1, limit, is_reported)
    assert [f"up to {limit} bytes: no score fits" in line for line in topics.faults(settings, described)] == [True] * wrong


def test_a_missing_topic_is_reported_with_an_unused_topic_of_a_similar_name() -> None:
    settings = minimal(input={"topics": ["flihgts"]}, output={"topic": "scores"}, dead_letter={"topic": "flihgts.dead"})
    described = {name: topics.DescribedTopic(name, 1, 2_000_000) for name in topics.required(settings) if name != "flihgts"}
    assert topics.faults(settings, described, ["flights", "flihgts.dead", "scores"]) == [
        "topic flihgts does not exist: did you mean 'flights'?"
    ]
    assert topics.faults(settings, described, ["flihgts.dead", "scores"]) == ["topic flihgts does not exist"]


def test_a_shadow_writes_scores_to_its_topic_and_status_to_the_topic_of_the_scorers() -> None:
    settings = minimal(shadow={"share": 5, "listen": "127.0.0.1:7"}, replica="a")
    shadow = ShadowWorkerSettings.from_scorer(settings)
    assert topics.required(shadow) == {
        "in": frozenset({READ}),
        "out.shadow": frozenset({WRITE}),
        "n.status": frozenset({WRITE}),
    }
    assert (shadow.name, shadow.owner, shadow.http.listen, shadow.input.start) == (
        "n.shadow",
        "n.shadow.a",
        "127.0.0.1:7",
        "latest",
    )
    assert shadow.transactional_prefix(shadow.owner) == "n.shadow/scorer/a"
    assert "out.shadow" in {topic.topic for topic in topics.missing(settings, {}, 3)}
    assert "out.shadow" not in topics.required(settings)


def test_a_copy_takes_records_that_are_larger_by_the_headers_of_the_relay() -> None:
    settings = minimal(input={"topics": ["flights", "eu.flights", "weather"]})
    for limit, existing in ((1_048_588, {}), (5_000_000, {"flights": topics.DescribedTopic("flights", 3, 5_000_000)})):
        plans = {plan.topic: plan.config or {} for plan in topics.missing(settings, existing, 3)}
        assert plans["eu.flights"] == {"max.message.bytes": str(limit + HEADER_BYTES)}
        assert plans["weather"] == {}
        described = {name: topics.DescribedTopic(name, 3, int(c.get("max.message.bytes", limit))) for name, c in plans.items()}
        assert topics.faults(settings, described | existing) == [], "dead letters of copies fit, too"


def test_only_missing_copies_are_created() -> None:
    settings = minimal(input={"topics": ["flights", "eu.flights"]})
    existing = {name: topics.DescribedTopic(name, 3, 1_048_588) for name in ("flights", "eu.flights")}
    plans = {plan.topic: plan.config or {} for plan in topics.missing(settings, existing, 3)}
    assert not plans.keys() & existing.keys()
    assert plans[settings.dead_letter.topic]["max.message.bytes"] == str(1_048_588 + topics.DEAD_LETTER_ROOM)


def described(name: str, partitions: int = 3, **changes: Any) -> topics.DescribedTopic:
    return topics.DescribedTopic(name, partitions, 2_000_000, **changes)


def test_the_topics_of_tables_are_read_and_created_compacted_with_the_partitions_of_the_input() -> None:
    settings = minimal(tables={"customers": {"topic": "customers.features"}})
    assert topics.required(settings)["customers.features"] == frozenset({READ})
    (plan,) = [plan for plan in topics.missing(settings, {"in": described("in", 12)}, 3) if plan.topic == "customers.features"]
    assert (plan.num_partitions, plan.config) == (12, {"cleanup.policy": "compact"})


@pytest.mark.parametrize(("scope", "partitions", "fault_count"), [("partition", 4, 1), ("partition", 3, 0), ("all", 4, 0)])
def test_a_table_of_scope_partition_needs_the_partitions_of_the_input(scope: str, partitions: int, fault_count: int) -> None:
    settings = minimal(tables={"customers": {"topic": "customers.features", "scope": scope}})
    existing = {name: described(name) for name in topics.required(settings)}
    existing[settings.dead_letter.topic] = topics.DescribedTopic(settings.dead_letter.topic, 3, 3_000_000)
    existing["customers.features"] = described("customers.features", partitions)
    faults = topics.faults(settings, existing)
    assert len(faults) == fault_count
    assert not faults or faults[0] == (
        "table customers: topic customers.features has 4 partitions, but the input topic in has 3: "
        "use the same number for both, or set tables.customers.scope to all"
    )


@pytest.mark.parametrize(
    ("policy", "retention", "effect"),
    [
        ("delete", 3_600.0, "rows are deleted by age"),
        ("delete", None, "old rows are never removed"),
        ("compact", None, ""),
        ("compact,delete", 3_600.0, ""),
        (None, None, ""),
    ],
)
def test_a_table_whose_topic_is_not_compacted_is_named(policy: str | None, retention: float | None, effect: str) -> None:
    settings = minimal(tables={"customers": {"topic": "customers.features"}})
    existing = {"customers.features": described("customers.features", cleanup_policy=policy, retention_seconds=retention)}
    remedy = "set cleanup.policy of customers.features to compact"
    line = f"table customers: topic customers.features is not compacted: {effect}; {remedy}"
    assert topics.uncompacted(settings, existing) == ([line] if effect else [])
