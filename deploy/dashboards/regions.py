"""Build the dashboard of the relays: the copied records and the lag between regions.

A route is a pair of regions: a source and a destination. Only the metric `publisher_relay_info` has both as labels. Queries by
route therefore join other metrics with this metric.
"""

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.builders.timeseries import Panel
from panels import HALF, THIRD, board, changes, figure, lines, now, rate

ENDS = f"on (namespace, pod, instance) group_left (source, destination) {now('publisher_relay_info')}"


def by_way(over: str, expression: str) -> str:
    """Return a PromQL expression that aggregates `expression` by route, with the PromQL operator `over` (such as `sum`)."""
    return f"{over} by (source, destination) ({expression} * {ENDS})"


def each_way(title: str, description: str, unit: str, expression: str, *, width: int = HALF) -> Panel:
    """Create a panel with one line for each route. `expression` must have the labels source and destination."""
    return lines(title, description, unit, [(expression, "{{source}} to {{destination}}")], width=width)


COMMIT = by_way("sum", rate("publisher_commit_seconds_total"))
COMMITS = by_way("sum", rate("publisher_transactions_total"))
RETENTION_USED = (
    f"max(max by (namespace, pod, instance) ({now('publisher_lag_seconds')})"
    f" / min by (namespace, pod, instance) ({now('publisher_source_retention_seconds')}))"
)
NOW = [
    figure("Copying", "Relays that copy.", "short", f"sum({now('publisher_copying')})"),
    figure("Behind", "The lane that is furthest behind.", "s", f"max({now('publisher_lag_seconds')})"),
    figure("Waiting", "Records that are not copied yet.", "short", f"sum({now('publisher_lag_records')})"),
    figure(
        "Used of what the source keeps",
        "At 1 the source deletes what is not copied yet.",
        "percentunit",
        RETENTION_USED,
        width=HALF,
    ),
]
EACH_WAY = [
    each_way("Records copied", "By way.", "ops", by_way("sum", rate("publisher_records_total"))),
    each_way("Bytes copied", "Of the values read, by way.", "Bps", by_way("sum", rate("publisher_bytes_total"))),
    each_way(
        "Lag in seconds", "Age of the last copied record while more wait.", "s", by_way("max", now("publisher_lag_seconds"))
    ),
    each_way(
        "Lag in records",
        "Source offsets not copied, by the last answer of the source: the maximum loss if the source is lost.",
        "short",
        by_way("sum", now("publisher_lag_records")),
    ),
    each_way(
        "Source unreachable",
        "Time without an answer of the source.",
        "s",
        by_way("max", now("publisher_source_silence_seconds")),
        width=THIRD,
    ),
    each_way(
        "Since the last commit",
        "Of the lane that waits longest.",
        "s",
        by_way("max", now("publisher_checkpoint_age_seconds")),
        width=THIRD,
    ),
    each_way("Commit", "What a lane waits for the destination, a transaction.", "s", f"{COMMIT} / {COMMITS}", width=THIRD),
]
TROUBLE = [
    lines(
        "Lives ended",
        "By cause; a relay restarts by itself.",
        "short",
        [(f"sum by (family) (increase({now('publisher_troubles_total')}[$__rate_interval]))", "{{family}}")],
        width=THIRD,
    ),
    lines(
        "Restarts",
        "Relays after trouble, producers because a commit was slow, transactions because of an error; unreadable checkpoints.",
        "short",
        [
            (changes("publisher_restarts_total"), "relays"),
            (changes("publisher_producer_rotations_total"), "producers"),
            (changes("publisher_aborts_total"), "transactions"),
            (f"sum({now('publisher_unreadable_checkpoints')})", "unreadable checkpoints"),
        ],
        width=THIRD,
    ),
    lines(
        "Records held back",
        "By the filter, because they come from the destination, or because they cannot be copied.",
        "ops",
        [
            (f"sum({rate('publisher_records_filtered_total')})", "filtered"),
            (f"sum({rate('publisher_records_looped_total')})", "looped"),
            (f"sum({rate('publisher_records_refused_total')})", "refused"),
            (f"sum({rate('publisher_records_derived_total')})", "copied under their own origin"),
            (f"sum({now('publisher_partition_stopped')}) or vector(0)", "partitions stopped"),
        ],
        width=THIRD,
    ),
]


def dashboard() -> Dashboard:
    """Create the dashboard with three rows: the current state, each route, and faults."""
    rows = {"Now": NOW, "Each way": EACH_WAY, "Trouble": TROUBLE}
    return board("scorestream-regions", "scorestream: regions", "publisher_copying", rows)
