"""The alert rules as Prometheus evaluates them, and the agreement of rules, exported metrics, pages and tests."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest

from tests.packaging.deploy.alert_rules import (
    RULES,
    WORDS,
    alert_rules,
    all_rules,
    described,
    fired,
    groups,
    promtool_tests,
    rules_text,
    situations,
)
from tests.packaging.deploy.exporters import exporters
from tests.support.environment import ROOT

PAGE = ROOT / "deploy" / "alerts.md"
NAMES = {rule["alert"] for rule in alert_rules()}


def exported() -> set[str]:
    return {sample.name for registry in exporters() for family in registry.collect() for sample in family.samples}


def failures() -> dict[str, str]:
    """Return the alerts by failure, as the page's table states them."""
    section = PAGE.read_text().partition("## Who notices a failure")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", section, re.MULTILINE)
    return {failure: alerts for failure, alerts in rows if failure != "failure"}


def promtool(*arguments: str, cwd: Path) -> None:
    completed = subprocess.run(["promtool", *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr


@pytest.mark.debian("promtool")
def test_rules_are_valid_and_without_duplicates(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(rules_text())
    promtool("check", "rules", "--lint=all", "rules.yaml", cwd=tmp_path)


@pytest.mark.debian("promtool")
@pytest.mark.parametrize("interval", promtool_tests("rules.yaml"))
def test_exactly_the_expected_alerts_fire_in_each_situation(tmp_path: Path, interval: str) -> None:
    (tmp_path / "rules.yaml").write_text(rules_text())
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(promtool_tests("rules.yaml")[interval]))
    promtool("test", "rules", "tests.yaml", cwd=tmp_path)


def rules_of_a_plain_host(folder: Path, relays: int = 0) -> str:
    """Run the commands of the page in a folder, with this number of relays, and return the name of the rules file."""
    block = re.search(r"```sh\n(sed .*?)```", PAGE.read_text(), re.DOTALL)
    assert block
    script = block[1].replace("deploy/chart/files/alerts.yaml", str(RULES)).replace("vector(0)", f"vector({relays})")
    completed = subprocess.run(["sh", "-ec", script], cwd=folder, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return "flight-delay.rules.yaml"


@pytest.mark.debian("promtool")
def test_commands_of_the_page_write_rules_for_a_plain_host(tmp_path: Path) -> None:
    host = yaml.safe_load((tmp_path / rules_of_a_plain_host(tmp_path)).read_text())["groups"]
    expressions = {rule["record"]: rule["expr"] for group in host for rule in group["rules"] if "record" in rule}
    assert expressions["service:scorers:wanted"] == "vector(3)"
    assert expressions["service:relays:short"].startswith("vector(0) - ")
    changed = {"service:scorers:wanted", "service:relays:short"}
    for group, expected in zip(host, groups(), strict=True):
        for rule, rule_of_chart in zip(group["rules"], expected["rules"], strict=True):
            assert rule == rule_of_chart or rule.get("record") in changed


@pytest.mark.debian("promtool")
@pytest.mark.parametrize(("relays", "alerts"), [(0, []), (1, ["RelayAbsent"])])
def test_a_plain_host_without_a_relay_is_healthy_with_rules_for_no_relay(
    tmp_path: Path, relays: int, alerts: list[str]
) -> None:
    rules = rules_of_a_plain_host(tmp_path, relays)
    labels = 'namespace="scoring", service="flight-delay"'
    series = [
        {"series": f'{name}{{{labels}, instance="host:{9464 + worker}"}}', "values": "1x240"}
        for worker in range(3)
        for name in ("up", "scorer_assigned_partitions")
    ]
    firing = {"expr": 'count by (alertname) (ALERTS{alertstate="firing"})', "eval_time": "45m"}
    samples = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in alerts]
    test = {"interval": "15s", "input_series": series, "promql_expr_test": [{**firing, "exp_samples": samples}]}
    tests = {"rule_files": [rules], "evaluation_interval": "30s", "tests": [test]}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tests))
    promtool("test", "rules", "tests.yaml", cwd=tmp_path)


@pytest.mark.debian("promtool")
def test_metric_names_follow_the_conventions_of_prometheus() -> None:
    for registry in exporters():
        text = generate_latest(registry)
        completed = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
        assert (completed.returncode, completed.stdout + completed.stderr) == (0, b"")


def test_labels_are_few_and_bounded() -> None:
    """The label `error` is on one series per relay, that of its last trouble."""
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
        "setting",
        "revision",
        "python",
        "librdkafka",
        "onnxruntime",
        "table",
        "result",
    }


def test_every_selector_names_the_namespace_and_the_service() -> None:
    """Otherwise another service, shadow or namespace could hide an outage, or fire an alert of this service."""
    for rule in all_rules():
        selectors = re.findall(r"\b([a-z][\w:]*)\{([^}]*)\}", rule["expr"])
        assert selectors or "vector(" in rule["expr"], rule
        for metric, labels in selectors:
            assert 'namespace="scoring"' in labels or metric == "kube_job_failed", (metric, labels)
            if metric.startswith("kube_"):
                assert "flight-delay" in labels or metric == "kube_job_failed", (metric, labels)
            else:
                assert 'service="flight-delay"' in labels, (metric, labels)
        assert set(re.findall(r"\b(?:scorer|publisher|kube|service)[_:][\w:]+", rule["expr"])) <= {
            name for name, _ in selectors
        }
        assert rule["labels"].items() >= {"namespace": "scoring", "service": "flight-delay"}.items()


def test_every_word_is_replaced() -> None:
    assert not re.findall("|".join(WORDS), rules_text())
    assert set(re.findall(r"\b[A-Z]{4,}\b", RULES.read_text())) == set(WORDS)


def test_every_alert_fires_in_a_situation_with_its_text_and_is_silent_in_another() -> None:
    assert set().union(*map(fired, situations())) == NAMES
    text_tested = set().union(*map(described, situations()))
    assert NAMES - text_tested == set()
    assert any(not fired(situation) for situation in situations())


def test_every_alert_is_in_a_row_and_every_row_has_situations_in_which_its_alerts_fire() -> None:
    table = failures()
    by_row: dict[str, set[str]] = {}
    for situation in situations():
        by_row.setdefault(situation["row"], set()).update(fired(situation))
    assert set(by_row) == set(table)
    named = {row: set(re.findall(r"\b(?:Scorer|Relay|Training|Certificate)[A-Z]\w+", cell)) for row, cell in table.items()}
    assert set().union(*named.values()) == NAMES
    for row, alerts in named.items():
        assert alerts <= by_row[row], row
        assert bool(alerts) == bool(by_row[row]), row
        assert alerts or table[row].startswith("none: "), row


def test_every_metric_of_the_rules_is_exported_or_recorded() -> None:
    names = {name for rule in all_rules() for name in re.findall(r"\b(?:scorer|publisher)_\w+", rule["expr"])}
    assert len(names) > 10
    assert names <= exported()
    recorded = {rule["record"] for rule in all_rules() if "record" in rule}
    assert {name for rule in all_rules() for name in re.findall(r"\bservice:[\w:]+", rule["expr"])} <= recorded


def test_every_alert_has_a_severity_and_its_texts() -> None:
    for rule in alert_rules():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}


def test_every_alert_has_its_page_and_every_page_its_alert() -> None:
    pages = {path.name for path in (ROOT / "deploy" / "runbooks").glob("[A-Z]*.md")}
    assert {rule["annotations"]["runbook_url"].rpartition("/")[2] for rule in alert_rules()} == pages
    assert {f"{rule['alert']}.md" for rule in alert_rules()} == pages


@pytest.mark.parametrize("rule", alert_rules(), ids=lambda rule: str(rule["alert"]))
def test_every_page_begins_with_the_severity_and_has_the_same_parts(rule: dict[str, Any]) -> None:
    page = (ROOT / "deploy" / "runbooks" / f"{rule['alert']}.md").read_text()
    assert page.startswith(f"# {rule['alert']}\n\n**{rule['labels']['severity'].capitalize()}.** ")
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == ["Check", "Fix", "If it recurs"]
    assert re.search(r"^## Check\n\n```sh\n", page, re.MULTILINE), "commands first"


@pytest.mark.parametrize("rule", alert_rules(), ids=lambda rule: str(rule["alert"]))
def test_every_page_names_the_labels_that_replace_the_names_of_the_example(rule: dict[str, Any]) -> None:
    page = (ROOT / "deploy" / "runbooks" / f"{rule['alert']}.md").read_text()
    assert "Replace `scoring` and `flight-delay` by the labels `namespace` and `service` of the alert" in page
    assert {"namespace", "service"} <= set(rule["labels"])
