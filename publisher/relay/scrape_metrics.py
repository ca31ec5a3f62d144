"""Read the state of a running relay from its own metrics over HTTP. `parse_process` is pure."""

from dataclasses import dataclass, field
from typing import Any

import httpx
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

ANSWER_SECONDS = 2.0
LOCAL_ADDRESSES = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
"""The address to connect to, for a process that listens on all addresses."""
LANE_METRICS: dict[str, tuple[str, type]] = {
    "lag_records": ("publisher_lag_records", int),
    "lag_seconds": ("publisher_lag_seconds", float),
    "records": ("publisher_records", int),
    "transactions": ("publisher_transactions", int),
    "aborts": ("publisher_aborts", int),
    "refused": ("publisher_records_refused", int),
    "checkpoint_age_seconds": ("publisher_checkpoint_age_seconds", float),
}
"""The name and type of the metric from which each field of LaneStatus is read."""


@dataclass(frozen=True)
class LaneStatus:
    """The state of one copying thread (lane), as its metrics report it. Counts are totals since the start of the process.

    Attributes:
        lane: the number of the thread.
        lag_records: the lag in source offsets.
        lag_seconds: the lag in seconds.
        records: number of copied records.
        transactions: number of committed transactions.
        aborts: number of failed transactions.
        checkpoint_age_seconds: time since the last commit.
        refused: number of records whose dead letters were produced to the refusal topic.
        records_per_second: copied records per second since the previous observation.
    """

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
class ProcessStatus:
    """The state of a relay's process.

    Attributes:
        copying: whether records are copied now.
        restarts: how often copying was restarted after a failure.
        last_error: the error that interrupted copying last; None if there was none.
        last_error_ms: when this error happened (Unix ms); None if there was none.
        lanes: the state of each copying thread.
        stopped: the partitions that are no longer copied, with the reasons.
    """

    copying: bool
    restarts: int
    last_error: str | None
    last_error_ms: int | None
    lanes: list[LaneStatus]
    stopped: list[str] = field(default_factory=list)


def fetch_process(listen: str, name: str) -> ProcessStatus | None:
    """Return the state of the relay `name` from the address `listen`; None if this relay does not answer there."""
    host, _, port = listen.rpartition(":")
    url = f"http://{LOCAL_ADDRESSES.get(host, host)}:{port}/metrics"
    try:
        response = httpx.get(url, timeout=ANSWER_SECONDS, trust_env=False)
        response.raise_for_status()
        return parse_process(response.text, name)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return None


def parse_process(text: str, relay: str) -> ProcessStatus | None:
    """Parse metrics in Prometheus' text format; return None if they are the metrics of another relay.

    A metric that an older version does not have counts as 0.

    Raises:
        ValueError: if the text does not contain metrics.
    """
    families = {family.name: family for family in text_string_to_metric_families(text)}
    if [sample.labels["name"] for sample in _samples(families.get("publisher_relay_info"))] != [relay]:
        return None
    lanes: dict[int, dict[str, Any]] = {
        int(sample.labels["lane"]): dict.fromkeys(LANE_METRICS, 0) for sample in families["publisher_transactions"].samples
    }
    for name, (metric, kind) in LANE_METRICS.items():
        for sample in _samples(families.get(metric)):
            lanes[int(sample.labels["lane"])][name] = kind(sample.value)
    failure = next(iter(_samples(families.get("publisher_last_trouble_timestamp_seconds"))), None)
    stopped = _samples(families.get("publisher_partition_stopped"))
    return ProcessStatus(
        copying=families["publisher_copying"].samples[0].value == 1,
        restarts=int(families["publisher_restarts"].samples[0].value),
        last_error=failure.labels["error"] if failure else None,
        last_error_ms=int(failure.value * 1_000) if failure else None,
        lanes=[LaneStatus(lane, **row) for lane, row in sorted(lanes.items())],
        stopped=[f"{sample.labels['partition']} {sample.labels['error']}" for sample in stopped],
    )


def _samples(family: Metric | None) -> list[Sample]:
    return family.samples if family else []
