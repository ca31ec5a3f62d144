"""Build the dashboard of the scorers: flow, latency by stage, lag, versions and swaps, tables, dead letters, transactions."""

from grafana_foundation_sdk.builders.dashboard import Dashboard
from panels import THIRD, board, changes, expiry, figure, lines, mean, now, quantile, rate

POD = "{{pod}} {{instance}}"
PARTITION = "{{topic}}[{{partition}}]"
SHARES = (0.5, 0.95, 0.99)
STAGES = (
    f"sum by (stage) ({rate('scorer_stage_seconds_total')}) / ignoring (stage) group_left sum({rate('scorer_batches_total')})"
)

FLOW = [
    figure("Events", "Events per second that all scorers together answered.", "ops", f"sum({rate('scorer_events_total')})"),
    figure("Waiting", "Events that are not answered yet.", "short", f"sum({now('scorer_lag_records')})"),
    figure("Behind", "Lag of the partition that is furthest behind.", "s", f"max({now('scorer_lag_seconds')})"),
    figure("Scorers", "Number of scorers that Prometheus can scrape.", "short", f"count({now('scorer_assigned_partitions')})"),
    figure(
        "Partitions", "Number of partitions that are assigned to scorers.", "short", f"sum({now('scorer_assigned_partitions')})"
    ),
    figure(
        "Versions",
        "Number of model versions in use. More than one is normal only during a roll-out.",
        "short",
        f"count(count by (digest) ({now('scorer_model_info')}))",
    ),
    lines(
        "Events by outcome",
        "scored, expired (the deadline had passed), fallback (no model server was available), dead (dead letters).",
        "ops",
        [(f"sum by (outcome) ({rate('scorer_events_total')})", "{{outcome}}")],
        stacked=True,
    ),
    lines(
        "What limited batches",
        "Batches by the limit of their size. empty: no more events were waiting. size: batching.max_events. "
        "latency: the latency target. bytes: 16 MiB.",
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
        "Share of the scoring thread's time that is spent in stages. Near 1, more scorers are needed.",
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
        "Mean time of an event: the wait until its batch starts, then each stage of the batch.",
        "s",
        [(mean("scorer_event_wait_seconds"), "wait"), (STAGES, "{{stage}}")],
        stacked=True,
    ),
    lines(
        "Until it is taken",
        "From an event's timestamp until its batch starts.",
        "s",
        [(quantile(share, "scorer_event_wait_seconds"), f"{share:.0%}") for share in SHARES],
    ),
    lines(
        "Commit",
        "Mean time that the scoring loop waits for the broker to commit a transaction.",
        "s",
        [(f"sum({rate('scorer_commit_seconds_total')}) / sum({rate('scorer_commits_total')})", "commit")],
    ),
]
LAG = [
    lines(
        "Lag in seconds",
        "Time since a partition last had no waiting events; the ten partitions with the longest time.",
        "s",
        [(f"topk(10, max by (topic, partition) ({now('scorer_lag_seconds')}))", PARTITION)],
    ),
    lines(
        "Lag in events",
        "Events that are not answered yet; the ten partitions with the most events.",
        "short",
        [(f"topk(10, max by (topic, partition) ({now('scorer_lag_records')}))", PARTITION)],
    ),
    lines(
        "Partitions by scorer",
        "Partitions assigned to each scorer, and the number of members of the consumer group that are not scorers.",
        "short",
        [
            (f"sum by (pod, instance) ({now('scorer_assigned_partitions')})", POD),
            (f"max({now('scorer_foreign_members')})", "foreign members"),
        ],
    ),
    lines(
        "Away",
        "Scorers that wait for an unavailable dependency, assigned partitions that are not read, unreadable records of the "
        "scorers' own topics, and records that were left out of the feature log.",
        "short",
        [
            (f"sum by (what) ({now('scorer_away')})", "{{what}}"),
            (f"sum({now('scorer_partition_paused')}) or vector(0)", "partitions"),
            (changes("scorer_unreadable_records_total"), "unreadable records"),
            (changes("scorer_features_dropped_total"), "records not in the feature log"),
        ],
    ),
    lines(
        "Used of what the input keeps",
        "Lag divided by the retention of the input topic. At 1 Kafka deletes events that are not scored yet.",
        "percentunit",
        [
            (
                f"max by (topic) ({now('scorer_lag_seconds')}) / on (topic)"
                f" min by (topic) ({now('scorer_input_retention_seconds')})",
                "{{topic}}",
            )
        ],
    ),
    lines(
        "Certificates",
        "Time until the certificates in the configured files expire.",
        "s",
        [(expiry("scorer_certificate_expiry_timestamp_seconds"), "{{setting}}")],
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
        "The newest and the oldest revision of the channel in use. They differ during a roll-out.",
        "short",
        [(f"max({now('scorer_model_revision')})", "newest"), (f"min({now('scorer_model_revision')})", "oldest")],
    ),
    lines(
        "Swaps and refusals",
        "Changes of the version, versions that were refused, and partitions taken over by a scorer with an older "
        "channel revision.",
        "short",
        [
            (changes("scorer_swaps_total"), "swaps"),
            (changes("scorer_versions_refused_total"), "refused"),
            (f"sum({now('scorer_channel_refused')})", "scorers that refuse the channel"),
            (f"sum({now('scorer_channel_younger')})", "scorers with a channel younger than its partitions"),
            (changes("scorer_revision_fence_timeouts_total"), "revision not reached"),
        ],
    ),
    lines(
        "Trials of versions",
        "Versions that were tried in a separate process before they were loaded, by outcome.",
        "short",
        [(f"sum by (outcome) (increase({now('scorer_version_trials_total')}[$__rate_interval]))", "{{outcome}}")],
    ),
    lines(
        "Loads",
        "Duration of the longest current load of a version, including its trial.",
        "s",
        [(f"max({now('scorer_version_load_seconds')})", "longest")],
    ),
    lines(
        "Where models run",
        "Scorers by the device of the model, and by the decoder of plain JSON objects: the native scanner or msgspec.",
        "short",
        [
            (f"count by (backend, device) ({now('scorer_device_info')})", "{{backend}} {{device}}"),
            (f"count by (json) ({now('scorer_native_info')})", "JSON by {{json}}"),
        ],
    ),
    lines(
        "Builds",
        "Scorers and rollout controllers by the version and revision of the product. Several builds run during an upgrade.",
        "short",
        [
            (f"count by (version, revision) ({now('scorer_build_info')})", "scorers {{version}} {{revision}}"),
            (f"count by (version, revision) ({now('scorer_rollout_build_info')})", "controllers {{version}} {{revision}}"),
        ],
    ),
    lines(
        "Memory",
        "Resident memory of the largest worker, without its trial and sandbox processes.",
        "bytes",
        [
            (
                f"max({now('process_resident_memory_bytes')} and on (namespace, pod, instance) {now('scorer_build_info')})",
                "largest",
            )
        ],
    ),
]
REST = f"sum({rate('scorer_events_total')}) - (sum({rate('scorer_canary_events_total')}) or vector(0))"
ROLLOUT = [
    figure("Step", "Current step of the rollout plan, counted from 1.", "short", f"max({now('scorer_rollout_step')})"),
    figure("Steps", "Number of steps of the rollout plan.", "short", f"max({now('scorer_rollout_steps')})"),
    figure("Pairs", "Events of the step that both versions answered.", "short", f"max({now('scorer_rollout_pairs')})"),
    figure(
        "Judge behind", "Lag of the canary analysis behind the scores.", "s", f"max({now('scorer_rollout_behind_seconds')})"
    ),
    figure(
        "Waits for a person",
        "1 if the rollout waits for an operator's approval or is paused.",
        "short",
        f"max({now('scorer_rollout_waits_for_person')})",
    ),
    figure(
        "Leaders",
        "Number of rollout controllers that lead. The normal number is one.",
        "short",
        f"sum({now('scorer_rollout_leader')})",
    ),
    lines(
        "Events by arm",
        "Events by the version that their key belongs to. The plan divides the keys, so a few busy keys change "
        "the shares of the events.",
        "ops",
        [(f"sum({rate('scorer_canary_events_total')})", "canary"), (REST, "champion")],
        stacked=True,
    ),
    lines(
        "The canary's share of the events",
        "Share of the canary among all answered events. The percentage in the plan is a share of the keys instead.",
        "percentunit",
        [(f"sum({rate('scorer_canary_events_total')}) / sum({rate('scorer_events_total')})", "canary")],
    ),
    lines(
        "The canary's events by who answered",
        "Canary events by the reason for which the champion answered instead of the candidate (none: the "
        "candidate answered), and events that a shadow left out.",
        "ops",
        [
            (f"sum by (fallback) ({rate('scorer_canary_events_total')})", "{{fallback}}"),
            (f"sum({rate('scorer_shadow_skipped_events_total')})", "left out by the shadow"),
        ],
    ),
    lines(
        "Bake clock",
        "Elapsed bake time of the step, and the bake time that the plan requires. Time without observed events does not count.",
        "s",
        [(f"max({now('scorer_rollout_baked_seconds')})", "watched"), (f"max({now('scorer_rollout_wanted_seconds')})", "asked")],
    ),
    lines(
        "Decisions",
        "Decisions that the controllers wrote, by verdict.",
        "short",
        [(f"sum by (verdict) (increase({now('scorer_rollout_decisions_total')}[$__rate_interval]))", "{{verdict}}")],
    ),
    lines(
        "Controllers",
        "Controllers with an active rollout, controllers that cannot reach the registry, and the time since a "
        "controller last read the rollouts (s).",
        "short",
        [
            (f"sum({now('scorer_rollout_running')})", "with a rollout"),
            (f"sum({now('scorer_rollout_registry_away')})", "registry away"),
            (f"max({now('scorer_rollout_look_age_seconds')})", "last look, seconds ago"),
        ],
    ),
]
TABLES = [
    lines(
        "Rows of tables",
        "Rows that all scorers together hold, by table.",
        "short",
        [(f"sum by (table) ({now('scorer_table_rows')})", "{{table}}")],
        width=THIRD,
    ),
    lines(
        "Memory of tables",
        "Memory of the rows in the scorer that holds the most, by table.",
        "bytes",
        [(f"max by (table) ({now('scorer_table_bytes')})", "{{table}}")],
        width=THIRD,
    ),
    lines(
        "Lag of tables",
        "Time since the position of the scorer that is furthest behind last equalled the end of the table's topic.",
        "s",
        [(f"max by (table) ({now('scorer_table_lag_seconds')})", "{{table}}")],
        width=THIRD,
    ),
    lines(
        "Look-ups",
        "Look-ups by table and result. row: a row had the key. no-row: no row had it. no-key: the event had no key.",
        "ops",
        [(f"sum by (table, result) ({rate('scorer_table_lookups_total')})", "{{table}} {{result}}")],
        width=THIRD,
    ),
    lines(
        "Unreadable rows",
        "Rows that could not be read, by table and reason.",
        "short",
        [
            (
                f"sum by (table, reason) (increase({now('scorer_table_unreadable_rows_total')}[$__rate_interval]))",
                "{{table}} {{reason}}",
            )
        ],
        width=THIRD,
    ),
    lines(
        "Partitions that wait for tables",
        "Partitions that are paused until their tables are restored, or no longer behind.",
        "short",
        [(f"sum({now('scorer_table_waiting_partitions')})", "partitions")],
        width=THIRD,
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
        "Share of dead letters among all answered events.",
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
        "Age of the oldest open transaction. Consumers that read only committed records see no later records of "
        "its partitions.",
        "s",
        [(f"max({now('scorer_open_transaction_seconds')})", "age")],
        width=THIRD,
    ),
    lines(
        "Producers replaced",
        "Producers that were replaced because a commit was slow, or because another process took over their transactional id.",
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
        "Tables": TABLES,
        "Dead letters": DEAD_LETTERS,
        "Transactions": TRANSACTIONS,
    }
    return board("scorestream-scoring", "scorestream: scoring", "scorer_assigned_partitions", rows)
