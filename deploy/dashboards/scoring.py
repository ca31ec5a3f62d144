"""Build the dashboard of the scorers: flow, latency by stage, lag, versions and swaps, dead letters, transactions."""

from grafana_foundation_sdk.builders.dashboard import Dashboard
from panels import THIRD, board, changes, figure, lines, mean, now, quantile, rate

POD = "{{pod}} {{instance}}"
PARTITION = "{{topic}}[{{partition}}]"
SHARES = (0.5, 0.95, 0.99)
STAGES = (
    f"sum by (stage) ({rate('scorer_stage_seconds_total')}) / ignoring (stage) group_left sum({rate('scorer_batches_total')})"
)

FLOW = [
    figure("Events", "Answered, all scorers together.", "ops", f"sum({rate('scorer_events_total')})"),
    figure("Waiting", "Events that are not answered yet.", "short", f"sum({now('scorer_lag_records')})"),
    figure("Behind", "The partition that is furthest behind.", "s", f"max({now('scorer_lag_seconds')})"),
    figure("Scorers", "That Prometheus reaches.", "short", f"count({now('scorer_assigned_partitions')})"),
    figure("Partitions", "That scorers own.", "short", f"sum({now('scorer_assigned_partitions')})"),
    figure(
        "Versions", "More than one during a roll-out only.", "short", f"count(count by (digest) ({now('scorer_model_info')}))"
    ),
    lines(
        "Events by outcome",
        "scored, expired (their deadline had passed), fallback (no model server was there), dead (dead letters).",
        "ops",
        [(f"sum by (outcome) ({rate('scorer_events_total')})", "{{outcome}}")],
        stacked=True,
    ),
    lines(
        "What limited batches",
        "empty: nothing more was there. size: batching.max_events. latency: the target. bytes: 16 MiB.",
        "ops",
        [(f"sum by (by) ({rate('scorer_batches_limited_total')})", "{{by}}")],
        stacked=True,
    ),
    lines(
        "Batch size",
        "Events in a batch.",
        "short",
        [(mean("scorer_batch_events"), "mean"), (quantile(0.99, "scorer_batch_events"), "99 %")],
    ),
    lines(
        "Busy",
        "Share of the scoring thread's time that is spent in stages; near 1 it needs more scorers.",
        "percentunit",
        [(f"sum by (pod, instance) ({rate('scorer_stage_seconds_total')})", POD)],
    ),
]
LATENCY = [
    lines(
        "Latency",
        "From an event's timestamp until its score is committed.",
        "s",
        [(quantile(share, "scorer_event_latency_seconds"), f"{share:.0%}") for share in SHARES],
    ),
    lines(
        "Latency by stage",
        "What an event spends on average: until it is taken, then in each stage of its batch.",
        "s",
        [(mean("scorer_event_wait_seconds"), "wait"), (STAGES, "{{stage}}")],
        stacked=True,
    ),
    lines(
        "Until it is taken",
        "From an event's timestamp until its batch is taken.",
        "s",
        [(quantile(share, "scorer_event_wait_seconds"), f"{share:.0%}") for share in SHARES],
    ),
    lines(
        "Commit",
        "What the loop waits for the broker, a transaction.",
        "s",
        [(f"sum({rate('scorer_commit_seconds_total')}) / sum({rate('scorer_commits_total')})", "commit")],
    ),
]
LAG = [
    lines(
        "Lag in seconds",
        "Time since a partition was last level, the ten worst.",
        "s",
        [(f"topk(10, max by (topic, partition) ({now('scorer_lag_seconds')}))", PARTITION)],
    ),
    lines(
        "Lag in events",
        "Not answered yet, the ten worst partitions.",
        "short",
        [(f"topk(10, max by (topic, partition) ({now('scorer_lag_records')}))", PARTITION)],
    ),
    lines(
        "Partitions by scorer",
        "By scorer; and members of the consumer group that are not scorers.",
        "short",
        [
            (f"sum by (pod, instance) ({now('scorer_assigned_partitions')})", POD),
            (f"max({now('scorer_foreign_members')})", "foreign members"),
        ],
    ),
    lines(
        "Away",
        "Scorers that wait for this, partitions whose position is out of range, and records of the scorers' own topics that "
        "are unreadable.",
        "short",
        [
            (f"sum by (what) ({now('scorer_away')})", "{{what}}"),
            (f"sum({now('scorer_partition_paused')}) or vector(0)", "partitions"),
            (changes("scorer_unreadable_records_total"), "unreadable records"),
        ],
    ),
]
VERSIONS = [
    lines(
        "Scorers by version",
        "A swap shows as one line falling while another rises.",
        "short",
        [(f"count by (model, version, role) ({now('scorer_model_info')})", "{{model}} {{version}} {{role}}")],
        stacked=True,
    ),
    lines(
        "Channel revision",
        "The lines part while a roll-out is under way.",
        "short",
        [(f"max({now('scorer_model_revision')})", "newest"), (f"min({now('scorer_model_revision')})", "oldest")],
    ),
    lines(
        "Swaps and refusals",
        "Changes of version, versions that were refused, partitions scored by an older one.",
        "short",
        [
            (changes("scorer_swaps_total"), "swaps"),
            (changes("scorer_versions_refused_total"), "refused"),
            (f"sum({now('scorer_channel_refused')})", "scorers that refuse the channel"),
            (changes("scorer_revision_fence_timeouts_total"), "revision not reached"),
        ],
    ),
    lines(
        "Trials of versions",
        "Versions that were tried in a process of their own before they were loaded, by outcome.",
        "short",
        [(f"sum by (outcome) (increase({now('scorer_version_trials_total')}[$__rate_interval]))", "{{outcome}}")],
    ),
    lines(
        "Loads",
        "The age of the longest load of a version, its trial included.",
        "s",
        [(f"max({now('scorer_version_load_seconds')})", "longest")],
    ),
    lines(
        "Where models run",
        "Scorers by device, and by what reads plain JSON objects: the native scanner, or msgspec.",
        "short",
        [
            (f"count by (backend, device) ({now('scorer_device_info')})", "{{backend}} {{device}}"),
            (f"count by (json) ({now('scorer_native_info')})", "JSON by {{json}}"),
        ],
    ),
]
REST = f"sum({rate('scorer_events_total')}) - (sum({rate('scorer_canary_events_total')}) or vector(0))"
ROLLOUT = [
    figure("Step", "Of the plan, from 1.", "short", f"max({now('scorer_rollout_step')})"),
    figure("Steps", "Of the plan.", "short", f"max({now('scorer_rollout_steps')})"),
    figure("Pairs", "Events of the step that both versions answered.", "short", f"max({now('scorer_rollout_pairs')})"),
    figure("Judge behind", "What was answered and is not judged yet.", "s", f"max({now('scorer_rollout_behind_seconds')})"),
    figure("Waits for a person", "1: for approval, or paused.", "short", f"max({now('scorer_rollout_waits_for_person')})"),
    figure("Leaders", "Controllers that lead: one.", "short", f"sum({now('scorer_rollout_leader')})"),
    lines(
        "Events by arm",
        "Whose turn they were. Keys are shared out: a few busy keys move this.",
        "ops",
        [(f"sum({rate('scorer_canary_events_total')})", "canary"), (REST, "champion")],
        stacked=True,
    ),
    lines(
        "The canary's share of the events",
        "Of all events answered; the plan's percentage is of the keys.",
        "percentunit",
        [(f"sum({rate('scorer_canary_events_total')}) / sum({rate('scorer_events_total')})", "canary")],
    ),
    lines(
        "The canary's events by who answered",
        "By why the champion answered them for the candidate (none: it did), and those that a shadow left out.",
        "ops",
        [
            (f"sum by (fallback) ({rate('scorer_canary_events_total')})", "{{fallback}}"),
            (f"sum({rate('scorer_shadow_skipped_events_total')})", "left out by the shadow"),
        ],
    ),
    lines(
        "Bake clock",
        "For how long the step was watched, of the time that the plan asks for; it stands where nothing is seen.",
        "s",
        [(f"max({now('scorer_rollout_baked_seconds')})", "watched"), (f"max({now('scorer_rollout_wanted_seconds')})", "asked")],
    ),
    lines(
        "Decisions",
        "Written by the controllers, by verdict.",
        "short",
        [(f"sum by (verdict) (increase({now('scorer_rollout_decisions_total')}[$__rate_interval]))", "{{verdict}}")],
    ),
    lines(
        "Controllers",
        "Those with a rollout that runs, those that do not reach the registry, and the age of the last look (s).",
        "short",
        [
            (f"sum({now('scorer_rollout_running')})", "with a rollout"),
            (f"sum({now('scorer_rollout_registry_away')})", "registry away"),
            (f"max({now('scorer_rollout_look_age_seconds')})", "last look, seconds ago"),
        ],
    ),
]
DEAD_LETTERS = [
    lines(
        "Dead letters by reason",
        "The reasons are explained in scorer/docs/dead-letters.md.",
        "ops",
        [(f"sum by (reason) ({rate('scorer_dead_letters_total')})", "{{reason}}")],
        stacked=True,
    ),
    lines(
        "Share of dead letters",
        "Of all events answered.",
        "percentunit",
        [(f"sum({rate('scorer_dead_letters_total')}) / sum({rate('scorer_events_total')})", "dead")],
    ),
]
TRANSACTIONS = [
    lines(
        "Commits and aborts",
        "A batch that is aborted is scored again.",
        "ops",
        [(f"sum({rate('scorer_commits_total')})", "commits"), (f"sum({rate('scorer_aborts_total')})", "aborts")],
        width=THIRD,
    ),
    lines(
        "Oldest open transaction",
        "Consumers see nothing that was written after it began.",
        "s",
        [(f"max({now('scorer_open_transaction_seconds')})", "age")],
        width=THIRD,
    ),
    lines(
        "Producers replaced",
        "Because a commit was slow, or another process took the id.",
        "short",
        [(changes("scorer_producer_rotations_total"), "slow"), (changes("scorer_fenced_total"), "fenced")],
        width=THIRD,
    ),
]


def dashboard() -> Dashboard:
    """Create the dashboard. Its first row is the flow of events."""
    rows = {
        "Flow": FLOW,
        "Latency": LATENCY,
        "Lag": LAG,
        "Versions and swaps": VERSIONS,
        "Rollout": ROLLOUT,
        "Dead letters": DEAD_LETTERS,
        "Transactions": TRANSACTIONS,
    }
    return board("scorestream-scoring", "scorestream: scoring", "scorer_assigned_partitions", rows)
