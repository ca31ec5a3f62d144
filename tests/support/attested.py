"""Predicates as a training run attests them: the comparison of its challenger with the champion, and the provenance."""

from typing import Any

RUN = "0123456789ab"
CHAMPION = f"sha256:{1:064x}"


def comparison(digest: str, verdict: str = "passed", run: str = RUN, **changes: Any) -> dict[str, Any]:
    """Return the predicate of a comparison for the version with this digest. `changes` replace fields of the predicate."""
    passed = verdict == "passed"
    matrix = {"labels": ["on time", "late"], "counts": [[50, 10], [5, 35]]}
    champion = {"version": "1.0.0", "digest": CHAMPION, "revision": 1, "metrics": {"auc": 0.9}, "confusion_matrix": matrix}
    return {
        "run": run,
        "rows": {"digest": f"sha256:{2:064x}", "count": 100, "from": "2013-10-01", "to": "2013-10-08", "blocks": 7},
        "metric": "auc",
        "champion": champion,
        "challenger": {"version": "2.0.0", "digest": digest, "metrics": {"auc": 0.91}, "confusion_matrix": matrix},
        "difference": {"value": 0.01, "low": 0.002, "high": 0.02},
        "discordant": {"only_champion_right": 3, "only_challenger_right": 9, "mcnemar_p": 0.15},
        "slices": [],
        "rules": [
            {"name": "coverage", "value": 0.97, "bound": 0.9, "passed": True},
            {"name": "not-worse", "value": 0.002, "bound": -0.002, "passed": passed},
            {"name": "leak", "value": None, "bound": None, "passed": True},
        ],
        "verdict": verdict,
        "because": "all rules passed" if passed else "the rule not-worse did not pass",
        **changes,
    }


def provenance(run: str = RUN, **changes: Any) -> dict[str, Any]:
    """Return the predicate of a provenance. `changes` replace fields of its `internalParameters`."""
    dependencies = [
        {"name": "events", "uri": "kafka:cluster/flights/0", "annotations": {"from": 5, "to": 1_005}},
        {"name": "events", "uri": "kafka:cluster/flights/1", "annotations": {"from": 0, "to": 0}},
        {"name": "labels", "uri": "kafka:cluster/outcomes/0", "annotations": {"from": 0, "to": 990}},
        {"name": "dataset", "digest": {"sha256": f"{3:064x}"}},
        {"name": "environment", "digest": {"sha256": f"{4:064x}"}},
    ]
    return {
        "buildDefinition": {
            "buildType": "https://scorestream.io/training/v1",
            "externalParameters": {"config": {"seed": 7}},
            "internalParameters": {"run": run, "seed": 7, "recipe": "trees", "parameters": {"leaves": 31}, **changes},
            "resolvedDependencies": dependencies,
        },
        "runDetails": {"builder": {"id": "https://scorestream.io/training"}, "metadata": {"invocationId": run}},
    }
