"""The alert rules of the chart with their words replaced, and the tests of `alerts.yaml` in the format of promtool.

A situation in `alerts.yaml` states only the series that differ from a healthy service, and the alerts that fire at some times.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from tests.support.environment import ROOT

RULES = ROOT / "deploy" / "chart" / "files" / "alerts.yaml"
SITUATIONS = Path(__file__).with_name("alerts.yaml")
RUNBOOKS = "https://git.example.com/team/scorestream/deploy/runbooks"
WORDS = {"NAMESPACE": "scoring", "SERVICE": "flight-delay", "RUNBOOKS": RUNBOOKS}
EVALUATION_INTERVALS = {"15s": "30s", "1m": "1m"}
"""The interval of the evaluations by the interval of the samples."""
PRODUCT_SERIES = re.compile(r"^(?:scorer|publisher|up\b)")


def rules_text(words: dict[str, str] | None = None) -> str:
    """Return the rules file with each word replaced."""
    text = RULES.read_text()
    for word, value in (words or WORDS).items():
        text = text.replace(word, value)
    return text


def groups(words: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """Return the groups of rules with each word replaced."""
    rule_groups: list[dict[str, Any]] = yaml.safe_load(rules_text(words))["groups"]
    return rule_groups


def all_rules() -> list[dict[str, Any]]:
    """Return all rules, recording rules included."""
    return [rule for group in groups() for rule in group["rules"]]


def alert_rules() -> list[dict[str, Any]]:
    """Return the rules of alerts."""
    return [rule for rule in all_rules() if "alert" in rule]


def situations() -> list[dict[str, Any]]:
    """Return the situations of `alerts.yaml`."""
    entries: list[dict[str, Any]] = yaml.safe_load(SITUATIONS.read_text())["situations"]
    return entries


def fired(situation: dict[str, Any]) -> set[str]:
    """Return the names of the alerts that fire at some time of a situation."""
    return {_name(entry) for entries in situation["firing"].values() for entry in entries}


def described(situation: dict[str, Any]) -> set[str]:
    """Return the names of the alerts whose text the situation states."""
    return {entry["alert"] for entries in situation["firing"].values() for entry in entries if isinstance(entry, dict)}


def promtool_tests(rules_file: str) -> dict[str, dict[str, Any]]:
    """Return the contents of test files for `promtool test rules`, by the interval of their samples."""
    healthy = yaml.safe_load(SITUATIONS.read_text())["healthy"]
    rules = {rule["alert"]: rule for rule in alert_rules()}
    files: dict[str, dict[str, Any]] = {}
    for situation in situations():
        interval = situation.get("interval", "15s")
        empty = {"rule_files": [rules_file], "evaluation_interval": EVALUATION_INTERVALS[interval], "tests": []}
        files.setdefault(interval, empty)["tests"].append(_promtool_test(situation, healthy, rules))
    return files


def _promtool_test(situation: dict[str, Any], healthy: dict[str, str], rules: dict[str, Any]) -> dict[str, Any]:
    interval = situation.get("interval", "15s")
    samples = situation.get("samples", 240)
    steady = {series: f"{value}x{samples}" for series, value in healthy.items()}
    series = {name: values for name, values in (steady | situation.get("series", {})).items() if values is not None}
    return {
        "name": situation["name"],
        "interval": interval,
        "input_series": [{"series": _complete(name), "values": _mark_stale(values)} for name, values in series.items()],
        "promql_expr_test": [_exact_alerts(at, entries, rules) for at, entries in situation["firing"].items()],
        "alert_rule_test": [
            _text(at, entry, rules[entry["alert"]])
            for at, entries in situation["firing"].items()
            for entry in entries
            if isinstance(entry, dict)
        ],
    }


def _complete(series: str) -> str:
    """Add the labels of the tested service to a series of the product, and the namespace to one of kube-state-metrics."""
    if "namespace=" in series:
        return series
    name, _, labels = series.partition("{")
    added = 'namespace="scoring", service="flight-delay"' if PRODUCT_SERIES.match(series) else 'namespace="scoring"'
    return f"{name}{{{added}{', ' if labels.strip('}') else ''}{labels or '}'}"


def _mark_stale(values: str) -> str:
    """Begin each gap with a stale marker, as Prometheus does when a scrape fails or a target disappears."""
    tokens: list[str] = []
    for token in values.split():
        if token.startswith("_") and tokens and not tokens[-1].startswith(("_", "stale")):
            rest = int(token.partition("x")[2] or 1) - 1
            tokens += ["stale", *([f"_x{rest}"] if rest else [])]
        else:
            tokens.append(token)
    return " ".join(tokens)


def _exact_alerts(at: str, entries: list[Any], rules: dict[str, Any]) -> dict[str, Any]:
    """Return the test that exactly these alerts fire for the service; a repeated alert fires for several sets of labels."""
    counts = Counter(_name(entry) for entry in entries)
    samples = [
        {"labels": f'{{alertname="{name}", severity="{rules[name]["labels"]["severity"]}"}}', "value": count}
        for name, count in counts.items()
    ]
    expression = 'count by (alertname, severity) (ALERTS{alertstate="firing", namespace="scoring", service="flight-delay"})'
    return {"expr": expression, "eval_time": at, "exp_samples": samples}


def _text(at: str, entry: dict[str, str], rule: dict[str, Any]) -> dict[str, Any]:
    labels = {name: value for name, value in entry.items() if name not in ("alert", "summary")}
    description = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda match: labels[match[1]], rule["annotations"]["description"])
    annotations = {**rule["annotations"], "summary": entry["summary"], "description": description}
    alert = {"exp_labels": {**rule["labels"], **labels}, "exp_annotations": annotations}
    return {"eval_time": at, "alertname": entry["alert"], "exp_alerts": [alert]}


def _name(entry: str | dict[str, str]) -> str:
    return entry if isinstance(entry, str) else entry["alert"]
