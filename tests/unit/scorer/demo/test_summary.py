"""What the demo says of its two versions."""

from rich.console import Console

from scorer.demo.run import PROMOTION
from scorer.demo.summary import TopicSummary, VersionResult


def shown(*versions: str) -> str:
    """Return the table of a run in which these versions answered, each with a lower AUC than the one before."""
    results = {version: VersionResult(10, 0.9 - at / 100) for at, version in enumerate(versions)}
    found = TopicSummary(
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
    console.print(found.table())
    return console.export_text()


def test_figures_of_versions_that_answered_other_flights_are_not_compared() -> None:
    assert "these AUCs do not compare them" in shown("1.0.0", "2.0.0")
    assert "compare" not in shown("1.0.0")


def test_a_version_is_not_promoted_for_being_better_by_a_figure_that_may_come_out_lower() -> None:
    assert "better" not in PROMOTION
    assert "AUC" not in PROMOTION
