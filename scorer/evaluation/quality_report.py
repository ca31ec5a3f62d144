"""Format quality figures for reports: as a JSON document, and as text. Pure."""

from dataclasses import asdict
from typing import Any

from scorer.evaluation.assessment import Assessment, Quality
from scorer.evaluation.label_columns import RecordPosition

DASH = "\N{EN DASH}"
"""The text that is printed for a figure that is None."""
FIGURE_TITLES = ("accuracy", "AUC", "PR-AUC", "Brier", "calibration error", "mean error", "RMSE")
"""The titles of `assessment.FIGURES`, in their order."""


def format_figure(value: float | None, digits: int = 5) -> str:
    """Format a figure with this many significant digits, or as a dash if it is None."""
    return DASH if value is None else f"{value:.{digits}g}"


def to_dict(assessment: Assessment) -> dict[str, Any]:
    """Return an assessment as a JSON document."""
    return {
        "answered": assessment.answered,
        "unreadable": assessment.unreadable,
        "labelled": assessment.labelled,
        "classes": assessment.classes,
        "labels_replaced": assessment.replaced,
        "labels_unmatched": assessment.unmatched,
        "labels_withdrawn": assessment.withdrawn,
        "labels_refused": [
            {
                "reason": str(reason),
                "labels": count,
                "first": _place(assessment.refused.examples[reason]),
                "why": assessment.refused.explanations.get(reason) or None,
            }
            for reason, count in sorted(assessment.refused.counts.items())
        ],
        "scores_undecided": dict(sorted(assessment.undecided.items())),
        "versions": [of_version(each) for each in assessment.versions],
    }


def of_version(each: Quality) -> dict[str, Any]:
    """Return the quality figures of one version as a JSON document."""
    version, _, digest = each.version.partition("@")
    rest = asdict(each)
    return {"version": version, "digest": digest or None, **{name: rest[name] for name in rest if name != "version"}}


def _place(place: RecordPosition) -> dict[str, Any]:
    (topic, partition), offset = place
    return {"topic": topic, "partition": partition, "offset": offset}
