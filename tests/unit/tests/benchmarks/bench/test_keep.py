"""The conversion of the harness's lines to the picture."""

from typing import Any

import pytest

from tests.benchmarks.bench import plot
from tests.benchmarks.bench.keep import kept

BUS = [{half: {"events_per_s": 500_000, "process_us": 2.0} for half in ("consume", "produce")}]


def row(name: str, kind: str, **figures: Any) -> dict[str, Any]:
    costs = {"cpu_us_per_event": 5.0, "broker_cpu_us_per_event": 60.0}
    return {"name": name, "kind": kind, "mode": "eos", "missing": 0, "dup": 0, "wrong": 0, **costs, **figures}


def run() -> list[dict[str, Any]]:
    """Two programs, drained once, paced at two rates in two rounds."""
    names, rates = ("scorestream", "hand"), (1_000.0, 10_000.0)
    drains = [row(name, "drain", ev_s=100_000) for name in names]
    paced = [row(name, "paced", rate=rate, p50=10.0 + n, p99=50.0) for name in names for n in range(2) for rate in rates]
    return drains + paced


def test_a_rate_has_the_lowest_and_the_highest_of_its_rounds() -> None:
    results = kept(run(), BUS, "a machine")
    assert [at["p50_ms"] for at in results["paced"]] == [[10.0, 11.0], [10.0, 11.0]]
    assert [peer["name"] for peer in results["peers"]] == ["Java loop, hand-written"]


def test_the_picture_has_every_program_and_the_bus_alone() -> None:
    picture = plot.draw(kept(run(), BUS, "a machine"))
    assert all(
        f">{name}<" in picture for name in (plot.OURS, "Java loop, hand-written", plot.BUS, "1,000/s", "10,000/s", "250k")
    )


@pytest.mark.parametrize("fault", [{"missing": 1}, {"dup": 1}, {"mode": "alo"}])
def test_a_run_that_was_not_exactly_once_is_not_kept(fault: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="hand was not exactly once"):
        kept([*run(), row("hand", "drain", ev_s=1) | fault], BUS, "a machine")


def test_a_program_that_was_not_drained_is_named() -> None:
    with pytest.raises(ValueError, match="hand was not drained"):
        kept([each for each in run() if (each["name"], each["kind"]) != ("hand", "drain")], BUS, "a machine")
