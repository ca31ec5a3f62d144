"""The summary of the demo's two versions."""

from rich.console import Console

from scorer.demo.run import PROMOTION
from scorer.demo.summary import TopicSummary, VersionResult


def print_summary(*versions: str) -> str:
    """Return the table of a run with these versions, each with a lower AUC than the previous one."""
    results = {version: VersionResult(10, 0.9 - at / 100) for at, version in enumerate(versions)}
    summary = TopicSummary(
        events=20,
        scored=20,
        missing=0,
        duplicates=0,
        phantoms=0,
        out_of_order=0,
        versions=results,
        throughput_eps=1.0,
        latency_ms={"p50": 1.0, "p99": 2.0},
        swap_pause_ms=None,
        kill_pause_ms=None,
    )
    console = Console(width=200, record=True)
    console.print(summary.table())
    return console.export_text()


def test_metrics_of_different_flights_are_not_compared() -> None:
    assert "these AUCs do not compare them" in print_summary("1.0.0", "2.0.0")
    assert "compare" not in print_summary("1.0.0")


def test_promotion_reason_does_not_claim_a_better_metric() -> None:
    assert "better" not in PROMOTION
    assert "AUC" not in PROMOTION
