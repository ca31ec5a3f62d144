"""Build the dashboard of the relays: the copied records and the lag between regions.

A route is a pair of regions: a source and a destination. Only the metric `publisher_relay_info` has both as labels. Queries by
route therefore join other metrics with this metric.
"""

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.builders.timeseries import Panel
from panels import HALF, THIRD, board, changes, expiry, figure, lines, now, rate

ENDS = f"on (namespace, pod, instance) group_left (source, destination) {now('publisher_relay_info')}"


def by_way(over: str, expression: str) -> str:
    """Return a PromQL expression that aggregates `expression` by route, with the operator `over` of PromQL, such as `sum`."""
    return f"{over} by (source, destination) ({expression} * {ENDS})"


def each_way(title: str, description: str, unit: str, expression: str, *, width: int = HALF) -> Panel:
    """Create a panel with one line for each route. `expression` must have the labels `source` and `destination`."""
    return lines(title, description, unit, [(expression, "{{source}} to {{destination}}")], width=width)


COMMIT = by_way("sum", rate("publisher_commit_seconds_total"))
COMMITS = by_way("sum", rate("publisher_transactions_total"))
RETENTION_USED = (
    f"max(max by (namespace, pod, instance) ({now('publisher_lag_seconds')})"
    f" / min by (namespace, pod, instance) ({now('publisher_source_retention_seconds')}))"
)
NOW = [
    figure("Copying", "Number of relays that are copying records.", "short", f"sum({now('publisher_copying')})"),
    figure(
        "Behind",
        "Largest lag of all lanes. A lane is one of the parallel copy loops of a relay.",
        "s",
        f"max({now('publisher_lag_seconds')})",
    ),
    figure("Waiting", "Records in the source that are not copied yet.", "short", f"sum({now('publisher_lag_records')})"),
    figure(
        "Used of what the source keeps",
        "Lag divided by the retention time of the source. At 1 the source deletes records that are not copied yet.",
        "percentunit",
        RETENTION_USED,
        width=HALF,
    ),
]
EACH_WAY = [
    each_way(
        "Records copied",
        "Copied records per second, by source and destination.",
        "ops",
        by_way("sum", rate("publisher_records_total")),
    ),
    each_way(
        "Bytes copied",
        "Bytes per second of the record values that were read, by source and destination.",
        "Bps",
        by_way("sum", rate("publisher_bytes_total")),
    ),
    each_way(
        "Lag in seconds",
        "Time since the last copied record while more records wait.",
        "s",
        by_way("max", now("publisher_lag_seconds")),
    ),
    each_way(
        "Lag in records",
        "Source offsets that are not copied, as of the last answer of the source. These records would be lost with the source.",
        "short",
        by_way("sum", now("publisher_lag_records")),
    ),
    each_way(
        "Source unreachable",
        "Time since the source last answered.",
        "s",
        by_way("max", now("publisher_source_silence_seconds")),
        width=THIRD,
    ),
    each_way(
        "Since the last commit",
        "Time since the last commit of a transaction, for the lane with the longest time.",
        "s",
        by_way("max", now("publisher_checkpoint_age_seconds")),
        width=THIRD,
    ),
    each_way(
        "Commit",
        "Mean time that a lane waits for the destination to commit a transaction.",
        "s",
        f"{COMMIT} / {COMMITS}",
        width=THIRD,
    ),
]
TROUBLE = [
    lines(
        "Lives ended",
        "Failures that interrupted copying, by cause. The relay then restarts without an operator.",
        "short",
        [(f"sum by (family) (increase({now('publisher_troubles_total')}[$__rate_interval]))", "{{family}}")],
        width=THIRD,
    ),
    lines(
        "Restarts",
        "Relays that restarted after a failure, producers replaced because a commit was slow, transactions "
        "aborted because of an error, and unreadable checkpoints.",
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
        "Builds",
        "Relays by the version and revision of the product. Several builds run during an upgrade.",
        "short",
        [(f"count by (version, revision) ({now('publisher_build_info')})", "{{version}} {{revision}}")],
        width=THIRD,
    ),
    lines(
        "Records held back",
        "Records that were not copied because the filter excludes them, because they come from the destination, "
        "or because they cannot be copied; and partitions that are stopped.",
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
    lines(
        "Certificates",
        "Time until the certificates in the configured files expire.",
        "s",
        [(expiry("publisher_certificate_expiry_timestamp_seconds"), "{{setting}}")],
    ),
]


def dashboard() -> Dashboard:
    """Create the dashboard with three rows: the current state, each route, and faults."""
    rows = {"Now": NOW, "Each way": EACH_WAY, "Trouble": TROUBLE}
    return board("scorestream-regions", "scorestream: regions", "publisher_copying", rows)
