"""The alerts as Prometheus itself judges them, and that each looks at what is really exported."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest

from tests.packaging.deploy.exporters import exporters, rule_groups, rules
from tests.support.environment import ROOT

TESTS = Path(__file__).with_name("alerts.yaml")


def exported() -> set[str]:
    return {sample.name for registry in exporters() for family in registry.collect() for sample in family.samples}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The rules as Prometheus reads them, with their tests beside them."""
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rule_groups()))
    (tmp_path / "alerts.yaml").write_text(TESTS.read_text())
    return tmp_path


@pytest.mark.debian("promtool")
@pytest.mark.parametrize("arguments", [("check", "rules", "--lint=all", "rules.yaml"), ("test", "rules", "alerts.yaml")])
def test_prometheus_agrees(folder: Path, arguments: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.debian("promtool")
def test_metrics_are_named_as_prometheus_wants_them() -> None:
    for registry in exporters():
        text = generate_latest(registry)
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_labels_are_few_and_bounded() -> None:
    """`error` stands on one series a relay, that of its last trouble."""
    families = [family for registry in exporters() for family in registry.collect()]
    labels = {label for family in families for sample in family.samples for label in sample.labels}
    assert labels == {
        "le",
        "outcome",
        "by",
        "stage",
        "reason",
        "topic",
        "partition",
        "model",
        "version",
        "digest",
        "role",
        "what",
        "backend",
        "device",
        "fallback",
        "lane",
        "family",
        "name",
        "source",
        "destination",
        "error",
        "json",
        "kafka",
        "verdict",
    }


def test_every_alert_is_tested_to_fire_and_to_be_silent() -> None:
    cases = [case for test in yaml.safe_load(TESTS.read_text())["tests"] for case in test["alert_rule_test"]]
    names = {rule["alert"] for rule in rules()}
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == names
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == names


def test_every_metric_that_an_alert_looks_at_is_exported() -> None:
    asked = {name for rule in rules() for name in re.findall(r"\b(?:scorer|publisher)_\w+", rule["expr"])}
    assert len(asked) > 10
    assert asked <= exported()


def test_every_alert_says_how_bad_it_is_and_what_to_look_at() -> None:
    for rule in rules():
        assert rule["labels"] in ({"severity": "critical"}, {"severity": "warning"})
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}


def test_every_alert_has_its_page_and_every_page_its_alert() -> None:
    pages = {path.name for path in (ROOT / "deploy" / "runbooks").glob("[A-Z]*.md")}
    assert {rule["annotations"]["runbook_url"].rpartition("/")[2] for rule in rules()} == pages
    assert {f"{rule['alert']}.md" for rule in rules()} == pages


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_every_page_begins_with_how_bad_it_is_and_has_the_same_parts(rule: dict[str, Any]) -> None:
    page = (ROOT / "deploy" / "runbooks" / f"{rule['alert']}.md").read_text()
    assert page.startswith(f"# {rule['alert']}\n\n**{rule['labels']['severity'].capitalize()}.** ")
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == ["Check", "Fix", "If it recurs"]
    assert re.search(r"^## Check\n\n```sh\n", page, re.MULTILINE), "commands first"
