"""Quality figures for reports: as a JSON document, and as text. Pure."""

from dataclasses import asdict
from typing import Any

from scorer.evaluation.assessment import Assessment, Quality
from scorer.evaluation.label_columns import Place

DASH = "\N{EN DASH}"
"""Printed for an unknown figure."""
FIGURE_TITLES = ("accuracy", "AUC", "Brier", "calibration error", "mean error", "RMSE")
"""The titles of `assessment.FIGURES`, in their order."""


def format_figure(value: float | None, digits: int = 5) -> str:
    """Format a figure with this many significant digits, or as a dash if it is None."""
    return DASH if value is None else f"{value:.{digits}g}"


def to_dict(found: Assessment) -> dict[str, Any]:
    return {
        "answered": found.answered,
        "unreadable": found.unreadable,
        "labelled": found.labelled,
        "classes": found.classes,
        "labels_replaced": found.replaced,
        "labels_unmatched": found.unmatched,
        "labels_withdrawn": found.withdrawn,
        "labels_refused": [
            {
                "reason": str(reason),
                "labels": count,
                "first": _place(found.refused.examples[reason]),
                "why": found.refused.explanations.get(reason) or None,
            }
            for reason, count in sorted(found.refused.counts.items())
        ],
        "scores_undecided": dict(sorted(found.undecided.items())),
        "versions": [of_version(each) for each in found.versions],
    }


def of_version(each: Quality) -> dict[str, Any]:
    version, _, digest = each.version.partition("@")
    rest = asdict(each)
    return {"version": version, "digest": digest or None, **{name: rest[name] for name in rest if name != "version"}}


def _place(place: Place) -> dict[str, Any]:
    (topic, partition), offset = place
    return {"topic": topic, "partition": partition, "offset": offset}
