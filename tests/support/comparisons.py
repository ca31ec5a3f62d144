"""What a training run attests of its challenger beside the champion."""

from typing import Any

RUN = "0123456789ab"
CHAMPION = f"sha256:{1:064x}"


def comparison(digest: str, verdict: str = "passed", run: str = RUN, **changes: Any) -> dict[str, Any]:
    """A whole comparison of the version with this digest, with some of its parts changed."""
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
