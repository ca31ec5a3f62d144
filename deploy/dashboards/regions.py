"""The dashboard of the relays: what reaches which region, and how late."""

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row
from panels import THIRD, board, figure, lines, now, rate

WAY = "{{source}} to {{destination}}"


def by_way(over: str, expression: str) -> str:
    """Summed up (or the largest) for each way between two regions."""
    ends = f"on (namespace, pod, instance) group_left (source, destination) {now('publisher_relay_info')}"
    return f"{over} by (source, destination) ({expression} * {ends})"


COMMIT = by_way("sum", rate("publisher_commit_seconds_total"))
COMMITS = by_way("sum", rate("publisher_transactions_total"))


def dashboard() -> Dashboard:
    """Both ends of each way are labels of `publisher_relay_info`, which every query takes them from."""
    return _trouble(_waits(_each_way(_now(board("scorestream-regions", "scorestream: regions", "publisher_copying")))))


def _now(made: Dashboard) -> Dashboard:
    return (
        made.with_row(Row("Now"))
        .with_panel(figure("Copying", "Relays that copy.", "short", f"sum({now('publisher_copying')})"))
        .with_panel(figure("Behind", "The lane that is furthest behind.", "s", f"max({now('publisher_lag_seconds')})"))
        .with_panel(figure("Waiting", "Records that are not copied yet.", "short", f"sum({now('publisher_lag_records')})"))
        .with_panel(
            figure(
                "Used of what the source keeps",
                "At 1 the source deletes what is not copied yet.",
                "percentunit",
                f"max(max by (namespace, pod, instance) ({now('publisher_lag_seconds')})"
                f" / min by (namespace, pod, instance) ({now('publisher_source_retention_seconds')}))",
                width=12,
            )
        )
    )


def _each_way(made: Dashboard) -> Dashboard:
    return (
        made.with_row(Row("Each way"))
        .with_panel(lines("Records copied", "By way.", "ops", [(by_way("sum", rate("publisher_records_total")), WAY)]))
        .with_panel(
            lines("Bytes copied", "Of the values read, by way.", "Bps", [(by_way("sum", rate("publisher_bytes_total")), WAY)])
        )
        .with_panel(
            lines(
                "Lag in seconds",
                "Age of the last copied record while more wait.",
                "s",
                [(by_way("max", now("publisher_lag_seconds")), WAY)],
            )
        )
        .with_panel(
            lines(
                "Lag in records",
                "Source offsets not copied, as last heard: the most that the loss of the source would cost.",
                "short",
                [(by_way("sum", now("publisher_lag_records")), WAY)],
            )
        )
    )


def _waits(made: Dashboard) -> Dashboard:
    return (
        made.with_panel(
            lines(
                "Source not heard",
                "Time without an answer of the source.",
                "s",
                [(by_way("max", now("publisher_source_silence_seconds")), WAY)],
                width=THIRD,
            )
        )
        .with_panel(
            lines(
                "Since the last commit",
                "Of the lane that waits longest.",
                "s",
                [(by_way("max", now("publisher_checkpoint_age_seconds")), WAY)],
                width=THIRD,
            )
        )
        .with_panel(
            lines(
                "Commit",
                "What a lane waits for the destination, a transaction.",
                "s",
                [(f"{COMMIT} / {COMMITS}", WAY)],
                width=THIRD,
            )
        )
    )


def _trouble(made: Dashboard) -> Dashboard:
    return (
        made.with_row(Row("Trouble"))
        .with_panel(
            lines(
                "Lives ended",
                "By what ended them; a relay begins anew by itself.",
                "short",
                [(f"sum by (family) (increase({now('publisher_troubles_total')}[$__rate_interval]))", "{{family}}")],
                width=THIRD,
            )
        )
        .with_panel(
            lines(
                "Begun anew",
                "Relays after trouble, producers because a commit was slow, transactions because of an error.",
                "short",
                [
                    (f"sum(increase({now('publisher_restarts_total')}[$__rate_interval]))", "relays"),
                    (f"sum(increase({now('publisher_producer_rotations_total')}[$__rate_interval]))", "producers"),
                    (f"sum(increase({now('publisher_aborts_total')}[$__rate_interval]))", "transactions"),
                ],
                width=THIRD,
            )
        )
        .with_panel(
            lines(
                "Records held back",
                "By the filter, because they come from the destination, or because they cannot be carried.",
                "ops",
                [
                    (f"sum({rate('publisher_records_filtered_total')})", "filtered"),
                    (f"sum({rate('publisher_records_looped_total')})", "looped"),
                    (f"sum({rate('publisher_records_refused_total')})", "refused"),
                    (f"sum({rate('publisher_records_derived_total')})", "copied under their own origin"),
                    (f"sum({now('publisher_partition_stopped')})", "partitions stopped"),
                ],
                width=THIRD,
            )
        )
    )
