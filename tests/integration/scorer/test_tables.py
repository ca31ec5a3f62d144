"""Events joined with the rows of a table, on the real broker."""

import json
from typing import Any

import pytest

from tests.integration.scorer.joined import JoinedRig, RowWriter, package
from tests.integration.scorer.rig import MakeRig, until
from tests.integration.scorer.schema_registry import OneSchema

KEYS = 20


def rows(factor: int = 100) -> list[tuple[str, dict[str, float]]]:
    """The rows of KEYS keys: the bonus of `k<n>` is `factor` * n."""
    return [(f"k{number}", {"bonus": float(factor * number)}) for number in range(KEYS)]


def events(count: int) -> list[dict[str, Any]]:
    return [{"key": f"k{number % KEYS}", "a": float(number)} for number in range(count)]


def expected(count: int, factor: int = 100) -> list[float]:
    return [2.0 * (number + factor * (number % KEYS)) for number in range(count)]


def test_every_event_is_joined_with_the_row_that_its_key_had_before_the_start(make_rig: MakeRig) -> None:
    joined = JoinedRig(make_rig)
    joined.rows.put((f"other{number}", {"bonus": -1.0}) for number in range(30_000))
    joined.rows.put(rows(factor=7))
    joined.rows.put(rows())
    ids = joined.emit(*events(500))
    scorer = joined.rig.start().ready()
    assert joined.scores(*ids) == expected(500)
    assert scorer.metric('scorer_table_lookups_total{result="row",table="customers"}') == 500
    assert scorer.metric('scorer_table_rows{table="customers"}') == 30_000 + KEYS
    joined.rig.assert_clean(events=500)


def test_an_update_changes_later_scores_and_a_tombstone_restores_the_default(make_rig: MakeRig) -> None:
    joined = JoinedRig(make_rig)
    joined.rows.put(rows())
    joined.rig.start().ready()
    assert joined.score(key="k1", a=1.0) == 202.0
    joined.rows.put([("k1", {"bonus": 5.0})])
    joined.wait_for_score(12.0, key="k1", a=1.0)
    joined.rows.put([("k1", None)])
    joined.wait_for_score(2.0, key="k1", a=1.0)
    joined.rows.put([("k1", {"other": 1.0})])
    assert joined.score(key="k1", a=1.0) == 2.0
    assert joined.score(key="k2", a=1.0) == 402.0
    assert joined.score(key="unknown", a=1.0) == 2.0


def test_a_key_at_a_path_is_a_text_or_an_integer_and_anything_else_has_no_row(make_rig: MakeRig) -> None:
    joined = JoinedRig(make_rig, key="customer.id", scope="all")
    joined.rows.put([("c-1", {"bonus": 10.0}), ("7", {"bonus": 20.0}), ("é", {"bonus": 30.0}), ("true", {"bonus": 40.0})])
    scorer = joined.rig.start().ready()
    keys = ["c-1", 7, "é", True, 7.5, None, {"id": "c-1"}, "absent"]
    ids = joined.emit(*({"key": "k", "a": 0.0, "customer": {"id": key}} for key in keys), {"key": "k", "a": 0.0})
    assert joined.scores(*ids) == [20.0, 40.0, 60.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    counts = {
        result: scorer.metric(f'scorer_table_lookups_total{{result="{result}",table="customers"}}')
        for result in ("row", "no-row", "no-key")
    }
    assert counts == {"row": 3, "no-row": 1, "no-key": 5}


def test_a_required_field_without_a_row_is_a_dead_letter_that_names_the_table(make_rig: MakeRig) -> None:
    joined = JoinedRig(make_rig)
    joined.rig.push(package(joined.rig.folder / "2.0.0", 2.0, "bonus", default=None), "2.0.0")
    joined.rig.promote("2.0.0")
    joined.rows.put([("k1", {"bonus": 1.0}), ("k2", {"other": 1.0})])
    joined.rig.start().ready()
    scored_id, _, _ = joined.emit({"key": "k1", "a": 1.0}, {"key": "k2", "a": 1.0}, {"key": "k3", "a": 1.0})
    assert joined.scores(scored_id) == [4.0]
    until(lambda: joined.rig.answered() == 3, "the dead letters")
    letters = {letter["key"]: letter for letter in joined.rig.dead()}
    assert {letter["reason"] for letter in letters.values()} == {"missing-field"}
    assert "customers" in letters["k2"]["error"]
    assert "customers" in letters["k3"]["error"]


def test_a_table_of_scope_all_needs_no_partitions_of_the_input_and_is_whole_in_each_worker(make_rig: MakeRig) -> None:
    joined = JoinedRig(make_rig, partitions=4, key="customer", scope="all")
    joined.rig.make_again(joined.topic, 3)
    joined.rows = RowWriter(joined.rig, joined.topic)
    joined.rows.put((f"c{number}", {"bonus": float(number)}) for number in range(1_000))
    joined.rig.start("a", workers=2).ready()
    ids = joined.emit(*({"key": f"k{number}", "a": 1.0, "customer": f"c{number}"} for number in range(1_000)))
    assert joined.scores(*ids) == [2.0 * (1.0 + number) for number in range(1_000)]


def test_rows_move_with_their_partitions_through_a_rebalance_a_kill_and_a_restart(make_rig: MakeRig) -> None:
    joined = JoinedRig(make_rig)
    joined.rows.put(rows())
    first = joined.rig.start("a").ready()
    second = joined.rig.start("b").ready()
    until(lambda: "assigned: " in second.said, "partitions of the second scorer")
    ids = joined.emit(*events(400))
    assert joined.scores(*ids) == expected(400)
    until(
        lambda: 0 < second.metric('scorer_table_rows{table="customers"}') < KEYS, "the rows of the second scorer's partitions"
    )
    joined.rows.put(rows(factor=3))
    joined.wait_for_score(2.0 * (1 + 3 * 19), key="k19", a=1.0)
    second.kill()
    ids = joined.emit(*events(400))
    assert joined.scores(*ids) == expected(400, factor=3)
    assert first.stop() == 0
    ids = joined.emit(*events(400))
    joined.rig.start("a").ready()
    assert joined.scores(*ids) == expected(400, factor=3)
    assert joined.rig.faults() == {}


def test_hostile_rows_are_counted_and_scoring_goes_on(make_rig: MakeRig) -> None:
    joined = JoinedRig(make_rig)
    joined.rig.alter(joined.topic, "max.message.bytes", str(12 << 20))
    joined.rows.put((f"absent{number}", None) for number in range(100))
    joined.rows.put(
        [
            (None, {"bonus": 1.0}),
            (None, None),
            ("k1", {"bonus": 1.0}),
            ("k1", {"bonus": "text"}),
            ("k2", {"bonus": None}),
            ("k3", {"bonus": {"deep": [1]}}),
            ("k4", b"\xff\xfe not JSON"),
            ("k5", b"null"),
            ("k6", b"[1, 2]"),
            ("k7", b"1" * 400),
            ("k8", {"bonus": 1.0, "padding": "x" * (10 << 20)}),
            (b"\xff\xfe\x00", {"bonus": 1.0}),
            (b"", {"bonus": 1.0}),
            ("k9", b'{"bonus": NaN}'),
            ("k10", b""),
            ("k19", {"bonus": 5.0}),
        ]
    )
    scorer = joined.rig.start().ready()
    ids = joined.emit(*({"key": f"k{number}", "a": 1.0} for number in range(KEYS)))
    scores = joined.scores(*ids)
    assert scores[19] == 12.0
    assert {scores[number] for number in (1, 2, 3, 4, 5, 6, 7, 9, 10, 11)} == {2.0}
    assert scorer.deaths == 0
    until(lambda: scorer.metric("scorer_table_unreadable_rows_total") > 0, "the count of unreadable rows")
    assert joined.topic in scorer.said
    joined.rows.put([("k4", {"bonus": 9.0})])
    joined.wait_for_score(20.0, key="k4", a=1.0)
    assert joined.rig.dead() == []


def test_rows_in_avro_are_joined_and_rows_of_an_unknown_schema_are_counted(make_rig: MakeRig) -> None:
    registry = OneSchema()
    registry.open()
    try:
        joined = JoinedRig(make_rig)
        joined.rig.configure(
            schema_registry={"url": registry.url}, tables={"customers": {"topic": joined.topic, "format": "avro"}}
        )
        joined.rig.push(package(joined.rig.folder / "3.0.0", 3.0, "a"), "3.0.0")
        joined.rig.promote("3.0.0")
        joined.rows.put([("k1", registry.event(1, "row", 4.0)), ("k2", registry.event(9, "row", 4.0)), ("k3", b"{}")])
        scorer = joined.rig.start().ready()
        ids = joined.emit(*({"key": key, "a": 1.0} for key in ("k1", "k2", "k3")))
        assert joined.scores(*ids) == [15.0, 3.0, 3.0]
        assert scorer.metric("scorer_table_unreadable_rows_total") >= 2
        printed = joined.rig.run("scorer", "tables", "get", "scorer.yaml", "customers", "k1").stdout
        assert '{"id":"row","a":4.0,"b":0.0}' in printed
        assert "unreadable" in joined.rig.run("scorer", "tables", "get", "scorer.yaml", "customers", "k2").stdout
    finally:
        registry.close()


def test_a_partition_waits_while_its_table_is_behind_and_continues_with_the_new_rows(make_rig: MakeRig) -> None:
    joined = JoinedRig(make_rig, partitions=1, when_behind="wait", max_lag_seconds=1.0)
    joined.rows.put([("k1", {"bonus": 1.0})])
    scorer = joined.rig.start().ready()
    assert joined.score(key="k1", a=1.0) == 4.0
    joined.rig.delete(joined.topic)
    until(lambda: scorer.metric('scorer_table_lag_seconds{table="customers"}') > 1, "the lag")
    until(lambda: scorer.metric("scorer_table_waiting_partitions") == 1, "the pause")
    count = joined.rig.answered()
    ids = joined.emit({"key": "k1", "a": 1.0})
    joined.rig.make_topic(joined.topic, 1)
    RowWriter(joined.rig, joined.topic).put([("k1", {"bonus": 9.0})])
    assert joined.rig.answered() == count
    assert joined.scores(*ids)[0] in (2.0, 20.0), "the new topic was empty for a moment"
    joined.wait_for_score(20.0, key="k1", a=1.0)
    until(lambda: scorer.metric("scorer_table_waiting_partitions") == 0, "the end of the pause")


def test_a_canary_joins_other_columns_of_the_same_rows(make_rig: MakeRig) -> None:
    joined = JoinedRig(make_rig)
    joined.rig.push(package(joined.rig.folder / "2.0.0", 3.0, "malus", "bonus"), "2.0.0")
    joined.rows.put((f"k{number}", {"bonus": float(number), "malus": -2.0 * number}) for number in range(100))
    joined.rig.start().ready()
    joined.rig.run("scorer", "promote", "scorer.yaml", "--to", "2.0.0", "--canary", "50%", "--wait")
    joined.emit(*({"key": f"k{number}", "a": 1_000.0} for number in range(100)))
    until(lambda: joined.rig.answered() >= 100, "the scores")
    arms: dict[str, int] = {}
    for record in joined.rig.scores():
        number = float(record["id"][1:])
        score = 2.0 * (1_000.0 + number) if record["arm"] == "champion" else 3.0 * (1_000.0 - number)
        assert record["score"] == score
        arms[record["arm"]] = arms.get(record["arm"], 0) + 1
    assert arms.keys() == {"champion", "canary"}


def test_a_version_that_names_an_unknown_table_is_refused_and_the_current_one_continues(make_rig: MakeRig) -> None:
    joined = JoinedRig(make_rig)
    joined.rows.put(rows())
    scorer = joined.rig.start().ready()
    joined.rig.push_unchecked(package(joined.rig.folder / "2.0.0", 2.0, "size", table="merchants"), "2.0.0")
    joined.rig.promote("2.0.0")
    until(lambda: scorer.metric("scorer_versions_refused_total") == 1, "the refusal")
    assert "merchants" in scorer.said
    assert joined.score(key="k1", a=1.0) == 202.0


@pytest.mark.parametrize(("limit", "value"), [("max_rows", 100), ("max_bytes", "1MiB")])
def test_a_table_that_exceeds_a_limit_ends_the_scorer_with_the_numbers(make_rig: MakeRig, limit: str, value: Any) -> None:
    joined = JoinedRig(make_rig, **{limit: value})
    joined.rows.put((f"k{number}", {"bonus": 1.0, "padding": "x" * 500}) for number in range(5_000))
    scorer = joined.rig.start()
    assert scorer.wait() != 0
    assert f"tables.customers.{limit}" in scorer.said


def test_check_creates_the_topic_compacted_and_names_what_does_not_fit(make_rig: MakeRig) -> None:
    joined = JoinedRig(make_rig, partitions=2)

    def findings(code: int, *flags: str) -> dict[str, str]:
        printed = joined.rig.run("scorer", "check", "scorer.yaml", "--json", *flags, code=code).stdout
        return {
            each["check"]: each["detail"]
            for each in json.loads(printed)["checks"]
            if each["check"] in ("table", "topic", "rows")
        }

    assert findings(0)["table"].startswith(f"customers: {joined.topic}, cleanup.policy compact, 2 partitions as the input")
    assert findings(0)["rows"].startswith("no row of the table customers was decoded")
    joined.rows.put([("k1", {"bonus": 1.0}), ("k2", None)])
    assert findings(0)["rows"] == "the newest 1 rows of the table customers can be decoded"
    joined.rows.put([("k3", {"bonus": "text"})])
    fault = "1 of the newest 2 rows of the table customers cannot be decoded; the first: wrong-type"
    assert findings(1)["rows"].startswith(fault)
    joined.rig.alter(joined.topic, "retention.ms", "3600000")
    joined.rig.alter(joined.topic, "cleanup.policy", "delete")
    assert f"topic {joined.topic} is not compacted: rows are deleted by age" in findings(1)["table"]
    joined.rig.make_again(joined.topic, 3)
    fault = f"topic {joined.topic} has 3 partitions, but the input topic {joined.rig.events_topic} has 2"
    assert fault in findings(1)["topic"]
    assert "topic" not in findings(1, "--set", "tables.customers.scope=all")
    scorer = joined.rig.start()
    assert scorer.wait() == 2
    assert fault in scorer.said


def test_the_commands_print_the_rows_that_scorers_hold_and_the_newest_row_of_a_key(make_rig: MakeRig) -> None:
    joined = JoinedRig(make_rig)
    joined.rows.put([*rows(factor=1), *rows()])
    joined.rig.start().ready()

    def tables() -> list[dict[str, Any]]:
        return json.loads(joined.rig.run("scorer", "tables", "scorer.yaml", "--json").stdout)["tables"]  # type: ignore[no-any-return]

    until(lambda: sum(each["rows"] for each in tables()) == KEYS, "the rows in the status records")
    partitions = tables()
    assert [each["partition"] for each in partitions] == [0, 1, 2, 3]
    assert {each["state"] for each in partitions} == {"ready"}
    assert sum(each["position"] for each in partitions) == 2 * KEYS
    assert all(each["bytes"] > 0 for each in partitions if each["rows"])
    assert "customers" in joined.rig.run("scorer", "tables", "scorer.yaml").stdout
    (row,) = json.loads(joined.rig.run("scorer", "tables", "get", "scorer.yaml", "customers", "k7", "--json").stdout)["rows"]
    assert (row["row"], row["deleted"]) == ({"bonus": 700.0}, False)
    joined.rows.put([("k7", None)])
    assert "deleted" in joined.rig.run("scorer", "tables", "get", "scorer.yaml", "customers", "k7", code=1).stdout
    assert "no row" in joined.rig.run("scorer", "tables", "get", "scorer.yaml", "customers", "unknown", code=1).stdout
    message = joined.rig.run("scorer", "tables", "get", "scorer.yaml", "customer", "k7", code=2).stderr
    assert "did you mean 'customers'?" in message
