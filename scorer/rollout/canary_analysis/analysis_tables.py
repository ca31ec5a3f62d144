"""Tables of a canary analysis for terminals, made from the JSON document of an `AnalysisReport`. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from model_registry.oci.digests import short
from scorer.evaluation.decision_output import UNKNOWN
from scorer.evaluation.quality_report import format_figure
from scorer.rollout.canary_analysis.analysis_report import DROPPED

DIGITS = 4  # significant digits of a figure


def analysis_tables(document: Mapping[str, Any]) -> Group:
    """Return the tables of an analysis: rules, decisions of both versions, counts of excluded answers and pairs of answers."""
    parts: list[RenderableType] = [_rules(document)]
    if any(each["champion"] != each["candidate"] for each in document["decisions"]):
        parts.append(_decisions(document["decisions"]))
    parts.append(_excluded(document))
    return Group(*parts)


def _rules(document: Mapping[str, Any]) -> Table:
    champion, candidate = (_version(document[role]) for role in ("champion", "candidate"))
    title = f"candidate {candidate} compared with champion {champion}: larger differences are worse"
    table = _table(title, "rule", "estimate", "at least", "at most", "margin", "pairs", "cells")
    for each in document["rules"]:
        figures = (format_figure(each[name], DIGITS) for name in ("estimate", "low", "high", "margin"))
        table.add_row(each["rule"], *figures, f"{each['pairs']:,}", f"{each['cells']:,}")
    for name, value in document["drift"].items():
        if value is not None:
            table.add_row(name, format_figure(value, DIGITS))
    return table


def _version(document: Mapping[str, Any]) -> str:
    return f"{document['version']} {short(document['digest'])}".strip()


def _decisions(decisions: Sequence[Mapping[str, Any]]) -> Table:
    counts = {(each["champion"], each["candidate"]): each["events"] for each in decisions}
    names = sorted({name for pair in counts for name in pair}, key=str)
    table = _table("decisions: the champion's by row, the candidate's by column", "", *map(str, names))
    for champion in names:
        table.add_row(str(champion), *(f"{counts.get((champion, candidate), 0):,}" for candidate in names))
    return table


def _excluded(document: Mapping[str, Any]) -> Table:
    table = _table("", "not in these figures", "")
    for name, count in document["dropped"].items():
        table.add_row(DROPPED.get(name, name), f"{count:,}")
    for digest, output in document.get("outputs", {}).items():
        if output is None:
            table.add_row(f"scores of {short(digest)} in the psi and brier figures: {UNKNOWN}", "all")
    if document["behind_seconds"] is not None:
        table.add_row("seconds behind", f"{document['behind_seconds']:.1f}")
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(*columns, title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    return table
