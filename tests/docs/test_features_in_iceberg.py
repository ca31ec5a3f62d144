"""The connector's file on the page fits the feature log; `python -m tests iceberg` runs it with the real connector."""

import json

import yaml

from tests.docs import pages

LOG = pages.blocks("scorer/docs/feature-log.md")
SINK = dict(line.split("=", 1) for line in pages.lines("scorer/docs/features-in-iceberg.md", "sink"))


def test_the_connector_reads_the_topic_of_the_feature_log() -> None:
    assert SINK["topics"] == yaml.safe_load(LOG["feature-log"])["features"]["topic"]


def test_each_transform_is_defined_and_names_fields_of_the_record() -> None:
    record = json.loads(LOG["record"])
    names = SINK["transforms"].split(",")
    assert {key.split(".")[1] for key in SINK if key.startswith("transforms.")} == {*names}
    fields = [SINK[f"transforms.{name}.field"] for name in names if f"transforms.{name}.field" in SINK]
    renamed = dict(pair.split(":") for pair in SINK["transforms.names.renames"].split(","))
    assert fields == list(renamed)
    assert record.keys() >= renamed.keys()
    assert not record.keys() & {*renamed.values()}
