"""The output of `scorer status`, and the rate limit of `scorer emit`."""

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from scorer.commands.emit import TICK, WritePace
from scorer.commands.status import Totals, report, totals
from scorer.console.scorer_fold import ScorerState
from scorer.observability.status_record import PartitionStatus, VersionStatus
from tests.unit.scorer.console.console_records import NOW, digest, status

NAME = "flight-delay"
REPLICAS = ("scorer-0", "ip-10-0-3-17-0", "fraud-eu-0-11")
REASON = "golden example 3 must score 0.25 within 0.0001, but scores 0.31"
FULL_DISK = "the model cache: No space left on device: /var/cache/scorestream/models/versions"
LONG_VERSION = "fraud-2025.12.01-rc.1"  # 21 characters


def scorer(replica: str, *, silent_seconds: float = 3.0, **changed: Any) -> ScorerState:
    """Return the state of a scorer with 8 partitions, whose last record is `silent_seconds` old."""
    defaults: dict[str, Any] = {
        "region": "eu-west-1",
        "partitions": [PartitionStatus("fraud.payments.authorised.v2", p, 123_456) for p in range(8)],
        "counters": {"events": 1_234_567_890, "dead_letters": 0},
    }
    record = status(f"{NAME}.{replica}", "2025.11.05-3", 41, **defaults | changed)
    return ScorerState(record, NOW - silent_seconds, record)


def print_report(*scorers: ScorerState, width: int = 80, wide: bool = False) -> list[str]:
    """Return the lines that `scorer status` prints on a terminal of this width."""
    console = Console(width=width, file=io.StringIO())
    console.print(report(NAME, scorers, NOW, wide=wide))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_scorer_is_one_line_with_its_partitions_and_lag() -> None:
    assert print_report(scorer("scorer-0")) == [
        "scorer    state    partitions      lag  version",
        "─────────────────────────────────────────────────────",
        "scorer-0  running           8  987,648  2025.11.05-3",
    ]


def test_departed_scorers_have_neither_partitions_nor_lag_and_the_totals_omit_them() -> None:
    later = [PartitionStatus("fraud.payments.authorised.v2", p, 10) for p in range(8, 12)]
    lines = print_report(
        scorer("scorer-0"),
        scorer("scorer-1", partitions=later),
        scorer("scorer-2", silent_seconds=103.0),
        scorer("scorer-3", state="stopped", silent_seconds=200.0),
        scorer("shadow.scorer-0", shadow=True),
    )
    assert lines == [
        "scorer           state          partitions      lag  version",
        "──────────────────────────────────────────────────────────────────",
        "scorer-0         running                 8  987,648  2025.11.05-3",
        "scorer-1         running                 4       40  2025.11.05-3",
        "scorer-2         silent 103 s            -        -  2025.11.05-3",
        "scorer-3         stopped 3 min           -        -  2025.11.05-3",
        "shadow.scorer-0  running                 8  987,648  2025.11.05-3",
        "",
        "total            2 running              12  987,688",
    ]


def test_a_partition_that_has_moved_counts_once_in_the_totals() -> None:
    moved = [PartitionStatus("fraud.payments.authorised.v2", p, 5) for p in range(8)]
    before, after = scorer("scorer-0", silent_seconds=4.0), scorer("scorer-1", partitions=moved, silent_seconds=1.0)
    assert totals([after, before], NOW) == Totals(running=2, partitions=8, lag=40)


@pytest.mark.parametrize("state", ["running", "waiting"])
def test_a_scorer_that_waits_is_shown_as_waiting_with_the_reason(state: str) -> None:
    wait = "model-registry: registry.example.com does not answer"
    lines = print_report(scorer("scorer-0", state=state, waiting=wait, partitions=[]), scorer("scorer-1", waiting=wait))
    assert lines[2].split()[:4] == ["scorer-0", "waiting", "0", "0"]
    assert " ".join(lines[-2:]) == f"scorer-0, scorer-1: waiting: {wait}"


def test_refused_and_delayed_versions_are_shown_with_the_reason() -> None:
    lines = print_report(
        scorer("scorer-0", refused={"2025.12.01-1": REASON}),
        scorer("scorer-1", refused={"2025.12.01-1": REASON}, delayed={"2025.12.02-1": FULL_DISK}),
        width=200,
    )
    assert lines[-2:] == [
        f"scorer-0, scorer-1: version 2025.12.01-1 is refused: {REASON}",
        f"scorer-1: version 2025.12.02-1 is not loaded yet: {FULL_DISK}",
    ]


@pytest.mark.parametrize("replica", ["scorer-0", "flight-delay-scorer-5d8f9c7b64-x2x4z-11"])
def test_long_versions_and_a_canary_fit_80_columns(replica: str) -> None:
    versions = {
        role: VersionStatus("m", f"{LONG_VERSION[:-1]}{number}", digest(str(number)), 41)
        for number, role in enumerate(("champion", "canary"))
    }
    changed: dict[str, Any] = {
        "versions": versions,
        "counters": {"events": 1, "dead_letters": 123_456},
        "refused": {LONG_VERSION: REASON},
        "delayed": {LONG_VERSION: FULL_DISK},
        "partitions": [PartitionStatus("in", p, 1_234_567) for p in range(100)],
    }
    lines = print_report(scorer(replica, **changed), scorer("b", silent_seconds=7_000.0, **changed))
    assert max(map(len, lines)) <= 80
    assert [lines[0].split(), *(line.split()[-1] for line in (lines[2], lines[4]))] == [
        ["scorer", "state", "partitions", "lag", "version", "dead"],
        "123,456",
        versions["canary"].version,
    ]
    assert f"  123,456,700  {versions['champion'].version}  123,456" in lines[2]
    assert lines[3].split()[-1] == "canary"
    names = "".join(line[:11].strip() for line in lines[2 : lines.index("", 2)])
    assert names.startswith(replica)


def test_dead_letters_have_a_column_if_there_are_any() -> None:
    head, _, row = print_report(scorer("scorer-0", counters={"dead_letters": 1_234}))
    assert head.split() == ["scorer", "state", "partitions", "lag", "version", "dead"]
    assert row.split()[-2:] == ["2025.11.05-3", "1,234"]


def test_wide_prints_all_columns_on_one_line() -> None:
    _, _, *rows = print_report(
        *(scorer(replica, refused={"2025.12.01-1": REASON}) for replica in REPLICAS), width=10_000, wide=True
    )
    for row in rows[: len(REPLICAS)]:
        for fact in ("eu-west-1", "sha256:20251105-3", "41", "1,234,567,890", "fraud.payments.authorised.v2[0-7]", REASON):
            assert fact in row


@given(rate=st.floats(1, 10_000), count=st.integers(1, 500), hiccup=st.floats(0, 0.5))
def test_rate_is_kept_in_bursts_and_no_event_is_early_by_more_than_one_burst(rate: float, count: int, hiccup: float) -> None:
    now, pace = 100.0, WritePace(rate, 100.0)
    for number in range(count):
        now += pace.pause(number, now)
        assert now >= 100.0 + number / rate - TICK * (1 + 1e-6) or number / rate > hiccup
        if number == count // 2:
            now += hiccup
    assert now >= 100.0 + (count - 1) / rate - TICK * (1 + 1e-6)


def test_without_a_rate_there_is_no_pause() -> None:
    assert [WritePace(None, 0.0).pause(number, 0.0) for number in range(3)] == [0.0, 0.0, 0.0]
