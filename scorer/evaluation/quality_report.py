"""An assessment as a document. Pure."""

from dataclasses import asdict
from typing import Any

from scorer.evaluation.assessment import Assessment, Quality
from scorer.evaluation.label_columns import Place


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
