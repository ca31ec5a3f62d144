"""The dashboard of the scorers: flow, latency by stage, lag, versions and swaps, dead letters, transactions."""

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row
from panels import THIRD, board, figure, lines, mean, now, quantile, rate

CHANGES = {
    "scorer_swaps_total": "swaps",
    "scorer_versions_refused_total": "refused",
    "scorer_revision_fence_timeouts_total": "revision not reached",
}


def dashboard() -> Dashboard:
    """Everything on one page, the question first that is asked first: does it flow?"""
    page = board("scorestream-scoring", "scorestream: scoring", "scorer_assigned_partitions")
    for section in (flow, latency, lag, versions, dead_letters, transactions):
        page = section(page)
    return page


def flow(page: Dashboard) -> Dashboard:
    """How much, and in what batches."""
    return _batches(_totals(page.with_row(Row("Flow"))))


def _totals(page: Dashboard) -> Dashboard:
    return (
        page.with_panel(figure("Events", "Answered, all scorers together.", "ops", f"sum({rate('scorer_events_total')})"))
        .with_panel(figure("Waiting", "Events that are not answered yet.", "short", f"sum({now('scorer_lag_records')})"))
        .with_panel(figure("Behind", "The partition that is furthest behind.", "s", f"max({now('scorer_lag_seconds')})"))
        .with_panel(figure("Scorers", "That Prometheus reaches.", "short", f"count({now('scorer_assigned_partitions')})"))
        .with_panel(figure("Partitions", "That scorers own.", "short", f"sum({now('scorer_assigned_partitions')})"))
        .with_panel(
            figure(
                "Versions",
                "More than one during a roll-out only.",
                "short",
                f"count(count by (digest) ({now('scorer_model_info')}))",
            )
        )
    )


def _batches(page: Dashboard) -> Dashboard:
    return (
        page.with_panel(
            lines(
                "Events by outcome",
                "scored, expired (their deadline had passed), dead (dead letters).",
                "ops",
                [(f"sum by (outcome) ({rate('scorer_events_total')})", "{{outcome}}")],
                stacked=True,
            )
        )
        .with_panel(
            lines(
                "What limited batches",
                "empty: nothing more was there. size: batching.max_events. latency: the target. bytes: 16 MiB.",
                "ops",
                [(f"sum by (by) ({rate('scorer_batches_limited_total')})", "{{by}}")],
                stacked=True,
            )
        )
        .with_panel(
            lines(
                "Batch size",
                "Events in a batch.",
                "short",
                [(mean("scorer_batch_events"), "mean"), (quantile(0.99, "scorer_batch_events"), "99 %")],
            )
        )
        .with_panel(
            lines(
                "Busy",
                "Share of the scoring thread's time that is spent in stages; near 1 it needs more scorers.",
                "percentunit",
                [(f"sum by (pod, instance) ({rate('scorer_stage_seconds_total')})", "{{pod}} {{instance}}")],
            )
        )
    )


def latency(page: Dashboard) -> Dashboard:
    """From an event's timestamp to its answer."""
    by_stage, batches = f"sum by (stage) ({rate('scorer_stage_seconds_total')})", f"sum({rate('scorer_batches_total')})"
    stages = f"{by_stage} / ignoring (stage) group_left {batches}"
    return (
        page.with_row(Row("Latency"))
        .with_panel(
            lines(
                "Latency",
                "From an event's timestamp until its score is committed.",
                "s",
                [(quantile(share, "scorer_event_latency_seconds"), f"{share:.0%}") for share in (0.5, 0.95, 0.99)],
            )
        )
        .with_panel(
            lines(
                "Latency by stage",
                "What an event spends on average: until it is taken, then in each stage of its batch.",
                "s",
                [(mean("scorer_event_wait_seconds"), "wait"), (stages, "{{stage}}")],
                stacked=True,
            )
        )
        .with_panel(
            lines(
                "Until it is taken",
                "From an event's timestamp until its batch is taken.",
                "s",
                [(quantile(share, "scorer_event_wait_seconds"), f"{share:.0%}") for share in (0.5, 0.95, 0.99)],
            )
        )
        .with_panel(
            lines(
                "Commit",
                "What the loop waits for the broker, a transaction.",
                "s",
                [(f"sum({rate('scorer_commit_seconds_total')}) / sum({rate('scorer_commits_total')})", "commit")],
            )
        )
    )


def lag(page: Dashboard) -> Dashboard:
    """How late scores are, and where."""
    return (
        page.with_row(Row("Lag"))
        .with_panel(
            lines(
                "Lag in seconds",
                "Time since a partition was last level, the ten worst.",
                "s",
                [(f"topk(10, max by (topic, partition) ({now('scorer_lag_seconds')}))", "{{topic}}[{{partition}}]")],
            )
        )
        .with_panel(
            lines(
                "Lag in events",
                "Not answered yet, the ten worst partitions.",
                "short",
                [(f"topk(10, max by (topic, partition) ({now('scorer_lag_records')}))", "{{topic}}[{{partition}}]")],
            )
        )
        .with_panel(
            lines(
                "Partitions by scorer",
                "By scorer.",
                "short",
                [(f"sum by (pod, instance) ({now('scorer_assigned_partitions')})", "{{pod}} {{instance}}")],
            )
        )
        .with_panel(
            lines(
                "Away",
                "Scorers that wait for this, and partitions that are not read because their position is out of range.",
                "short",
                [
                    (f"sum by (what) ({now('scorer_away')})", "{{what}}"),
                    (f"sum({now('scorer_partition_paused')})", "partitions"),
                ],
            )
        )
    )


def versions(page: Dashboard) -> Dashboard:
    """Who serves what."""
    return (
        page.with_row(Row("Versions and swaps"))
        .with_panel(
            lines(
                "Scorers by version",
                "A swap shows as one line falling while another rises.",
                "short",
                [(f"count by (model, version, role) ({now('scorer_model_info')})", "{{model}} {{version}} {{role}}")],
                stacked=True,
            )
        )
        .with_panel(
            lines(
                "Channel revision",
                "The lines part while a roll-out is under way.",
                "short",
                [(f"max({now('scorer_model_revision')})", "newest"), (f"min({now('scorer_model_revision')})", "oldest")],
            )
        )
        .with_panel(
            lines(
                "Swaps and refusals",
                "Changes of version, versions that were refused, partitions scored by an older one.",
                "short",
                [(f"sum(increase({now(metric)}[$__rate_interval]))", name) for metric, name in CHANGES.items()],
                width=THIRD * 2,
            )
        )
        .with_panel(
            lines(
                "Where models run",
                "Scorers by device, and by what reads plain JSON objects: the native scanner, or msgspec.",
                "short",
                [
                    (f"count by (backend, device) ({now('scorer_device_info')})", "{{backend}} {{device}}"),
                    (f"count by (json) ({now('scorer_native_info')})", "JSON by {{json}}"),
                ],
                width=THIRD,
            )
        )
    )


def dead_letters(page: Dashboard) -> Dashboard:
    """What could not be scored."""
    return (
        page.with_row(Row("Dead letters"))
        .with_panel(
            lines(
                "Dead letters by reason",
                'The reasons are explained in scorer/README.md, "Dead letters".',
                "ops",
                [(f"sum by (reason) ({rate('scorer_dead_letters_total')})", "{{reason}}")],
                stacked=True,
            )
        )
        .with_panel(
            lines(
                "Share of dead letters",
                "Of all events answered.",
                "percentunit",
                [(f"sum({rate('scorer_dead_letters_total')}) / sum({rate('scorer_events_total')})", "dead")],
            )
        )
    )


def transactions(page: Dashboard) -> Dashboard:
    """What exactly once costs, and when it does not go smoothly."""
    return (
        page.with_row(Row("Transactions"))
        .with_panel(
            lines(
                "Commits and aborts",
                "A batch that is aborted is scored again.",
                "ops",
                [(f"sum({rate('scorer_commits_total')})", "commits"), (f"sum({rate('scorer_aborts_total')})", "aborts")],
                width=THIRD,
            )
        )
        .with_panel(
            lines(
                "Oldest open transaction",
                "Consumers see nothing that was written after it began.",
                "s",
                [(f"max({now('scorer_open_transaction_seconds')})", "age")],
                width=THIRD,
            )
        )
        .with_panel(
            lines(
                "Producers replaced",
                "Because a commit was slow, or another process took the id.",
                "short",
                [
                    (f"sum(increase({now('scorer_producer_rotations_total')}[$__rate_interval]))", "slow"),
                    (f"sum(increase({now('scorer_fenced_total')}[$__rate_interval]))", "fenced"),
                ],
                width=THIRD,
            )
        )
    )
