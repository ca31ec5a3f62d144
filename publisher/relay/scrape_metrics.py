"""What a running relay says of itself, read from its own metrics over HTTP: what no cluster knows. `parsed` is pure."""

from dataclasses import dataclass, field
from typing import Any

import httpx
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

ANSWER_SECONDS = 2.0
ANYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # what is listened on, and where that is reached from here
LANE_METRICS: dict[str, tuple[str, type]] = {
    "lag_records": ("publisher_lag_records", int),
    "lag_seconds": ("publisher_lag_seconds", float),
    "records": ("publisher_records", int),
    "transactions": ("publisher_transactions", int),
    "aborts": ("publisher_aborts", int),
    "refused": ("publisher_records_refused", int),
    "checkpoint_age_seconds": ("publisher_checkpoint_age_seconds", float),
}
"""Fields of a lane, and the metrics that they are read from."""


@dataclass(frozen=True)
class LaneStanding:
    """One lane, as its process counts since its start: records copied and refused, transactions committed and aborted. Lag in
    source offsets and in seconds; `checkpoint_age_seconds` since its last commit, `records_per_second` since the last look."""

    lane: int
    lag_records: int
    lag_seconds: float
    records: int
    transactions: int
    aborts: int
    checkpoint_age_seconds: float
    refused: int = 0
    records_per_second: float | None = None


@dataclass(frozen=True)
class Process:
    """A relay's process. `restarts` counts how often it began anew; `last_error` is what last made it, None where nothing did,
    at `last_error_ms` (Unix). `stopped` says why, of each partition that it copies no more."""

    copying: bool
    restarts: int
    last_error: str | None
    last_error_ms: int | None
    lanes: list[LaneStanding]
    stopped: list[str] = field(default_factory=list)


def ask(listen: str, name: str) -> Process | None:
    """The relay `name` whose `http.listen` this is; None where none answers, or another one does."""
    host, _, port = listen.rpartition(":")
    try:
        answer = httpx.get(f"http://{ANYWHERE.get(host, host)}:{port}/metrics", timeout=ANSWER_SECONDS, trust_env=False)
        answer.raise_for_status()
        return parsed(answer.text, name)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return None


def parsed(text: str, relay: str) -> Process | None:
    """The process of these metrics (Prometheus' text format); None where they are not those of `relay`. A metric that an
    older version lacks counts as 0. Raises ValueError where they are no metrics."""
    families = {family.name: family for family in text_string_to_metric_families(text)}
    if [sample.labels["name"] for sample in _samples(families.get("publisher_relay_info"))] != [relay]:
        return None
    lanes: dict[int, dict[str, Any]] = {
        int(sample.labels["lane"]): dict.fromkeys(LANE_METRICS, 0) for sample in families["publisher_transactions"].samples
    }
    for name, (metric, kind) in LANE_METRICS.items():
        for sample in _samples(families.get(metric)):
            lanes[int(sample.labels["lane"])][name] = kind(sample.value)
    trouble = next(iter(_samples(families.get("publisher_last_trouble_timestamp_seconds"))), None)
    return Process(
        copying=families["publisher_copying"].samples[0].value == 1,
        restarts=int(families["publisher_restarts"].samples[0].value),
        last_error=trouble.labels["error"] if trouble else None,
        last_error_ms=int(trouble.value * 1_000) if trouble else None,
        lanes=[LaneStanding(lane, **row) for lane, row in sorted(lanes.items())],
        stopped=[f"{s.labels['partition']} {s.labels['error']}" for s in _samples(families.get("publisher_partition_stopped"))],
    )


def _samples(family: Metric | None) -> list[Sample]:
    return family.samples if family else []
