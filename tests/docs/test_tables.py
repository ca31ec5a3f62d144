"""The page of tables: its signature and configuration are valid, and its commands run on a real broker."""

import json

import yaml

from model_registry.package import field_sources
from model_registry.package.signature_schema import parse_signature
from tests.docs import pages
from tests.integration.scorer.joined import JoinedRig
from tests.integration.scorer.rig import MakeRig

PAGE = "scorer/TABLES.md"


def test_the_signature_joins_the_columns_that_the_page_names() -> None:
    signature = parse_signature(pages.blocks(PAGE)["signature"])
    joined = field_sources.joined_fields(signature)["customers"]
    assert [(field.name, field.required) for field in joined] == [("customers.age", False), ("customers.income", True)]


def test_the_configuration_and_the_commands_of_the_page_work(make_rig: MakeRig) -> None:
    (table,) = yaml.safe_load(pages.blocks(PAGE)["tables"])["tables"].values()
    joined = JoinedRig(make_rig, key=table["key"])
    joined.rig.delete(joined.topic)
    (check,) = pages.lines(PAGE, "check")
    findings = json.loads(joined.rig.run(*check.split(), "--json").stdout)["checks"]
    assert [finding["detail"] for finding in findings if finding["check"] == "created topics"] == [f"{joined.topic} (4)"]
    joined.rows.put([("C-1001", {"bonus": 1.0})])
    tables, get = pages.lines(PAGE, "commands")
    assert "customers" in joined.rig.run(*tables.split()).stdout
    assert '{"bonus":1.0}' in joined.rig.run(*get.split()).stdout
