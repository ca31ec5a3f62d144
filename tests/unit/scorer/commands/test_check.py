"""The findings of `scorer check` about tables."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from scorer import topics
from scorer.commands import check
from scorer.decoding.decoder_factory import create_decoder
from scorer.decoding.table_rows import row_decoder_factory
from scorer.tables.row_blocks import BlockLayout
from scorer.topics import DescribedTopic
from tests.unit.scorer.decoding.formats import signature_of
from tests.unit.scorer.minimal import minimal


class _AdminWithoutRights:
    """An admin client that may not describe brokers."""

    def list_topics(self, **_: Any) -> None:
        raise KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))


@pytest.mark.parametrize(("partitions", "finding_count"), [(2, 1), (3, 0)])
def test_a_table_with_other_partitions_than_the_input_is_not_reported_as_fit(partitions: int, finding_count: int) -> None:
    settings = minimal(tables={"customers": {"topic": "customers.features"}})
    described = {
        "in": DescribedTopic("in", 2, 1_000_000),
        "customers.features": DescribedTopic("customers.features", partitions, 1_000_000, cleanup_policy="compact"),
    }
    assert len(list(check._tables(settings, described, _AdminWithoutRights()))) == finding_count  # type: ignore[arg-type]


def test_only_missing_topics_have_the_hint_that_they_can_be_created() -> None:
    settings = minimal(tables={"customers": {"topic": "customers.features"}})
    described = {name: DescribedTopic(name, 3, 2_000_000) for name in topics.required(settings)}
    described[settings.dead_letter.topic] = DescribedTopic(settings.dead_letter.topic, 3, 3_000_000)
    described["customers.features"] = DescribedTopic("customers.features", 4, 1_000_000)
    del described[settings.output.topic]
    missing, mismatched, _ = check._topics(settings, described, frozenset(), [])
    assert (missing.ok, missing.detail) == (False, f"topic {settings.output.topic} does not exist")
    assert missing.hint == "--create creates missing topics"
    assert (mismatched.ok, mismatched.hint) == (False, "")
    assert mismatched.detail.endswith("use the same number for both, or set tables.customers.scope to all")


@pytest.mark.parametrize(
    ("key", "ok", "detail"),
    [
        ("custmer", False, "2 of the newest 2 events of in have no key at custmer for the table customers"),
        ("referrer", True, "1 of the newest 2 events of in have no key at referrer for the table customers"),
        (None, False, "2 of the newest 2 events of in have no key in the record for the table customers"),
        ("customer", True, ""),
    ],
)
def test_events_without_the_key_of_a_table_are_named(key: str | None, *, ok: bool, detail: str) -> None:
    settings = minimal(tables={"customers": {"topic": "customers.features", "key": key}})
    signature = signature_of(("x", "float32", ["a", {"name": "customers.age", "from": "table:customers"}]))
    tables = check.CountedKeys()
    decoder = create_decoder(settings, signature, tables)
    decoded = decoder.decode([b'{"a": 1, "customer": "7", "referrer": 8}', b'{"a": 2, "customer": 9}'])
    findings = list(check.table_keys(settings, "in", tables, len(decoded.rows)))
    assert [(finding.ok, finding.detail) for finding in findings] == ([(ok, detail)] if detail else [])


@pytest.mark.parametrize(("rows", "ok"), [([b"{}", b'{"ages": 7}'], False), ([b"{}", b'{"age": 7}'], True)])
def test_rows_without_the_column_of_a_required_field_are_named(rows: list[bytes], *, ok: bool) -> None:
    settings = minimal(tables={"customers": {"topic": "customers.features"}})
    required = {"name": "customers.age", "from": "table:customers"}
    optional = {"name": "customers.size", "from": "table:customers", "default": 0}
    layout = BlockLayout(signature_of(("x", "float32", [required, optional])).fields)
    decoded = row_decoder_factory("customers", settings)(layout).decode(rows)
    (finding,) = check.required_columns("customers", layout, decoded)
    missing_count = 1 if ok else 2
    assert finding.ok is ok
    assert finding.detail == (
        f"{missing_count} of the newest 2 rows of the table customers have no value for the required field 'customers.age'"
    )
