"""The table of `scorer status`, and the rate limit of `scorer emit`."""

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from scorer.commands.emit import TICK, WritePace
from scorer.commands.status import table
from scorer.console.scorer_fold import ScorerState
from scorer.observability.status_record import PartitionStatus
from tests.unit.scorer.console.console_records import NOW, status

NAME = "flight-delay"
REPLICAS = ("scorer-0", "ip-10-0-3-17-0", "fraud-eu-0-11")
WHY = "golden example 3 must score 0.25 within 0.0001, but scores 0.31"


def fleet(replicas: tuple[str, ...], *, refused: bool, dead: int = 0) -> list[ScorerState]:
    found = []
    for number, replica in enumerate(replicas):
        told = status(
            f"{NAME}.{replica}",
            "2025.11.05-3",
            41,
            region="eu-west-1",
            heartbeat_ms=int(NOW * 1_000) - 3_000 - 100_000 * number,
            partitions=[PartitionStatus("fraud.payments.authorised.v2", p, 123_456) for p in range(number, 24, 3)],
            refused={"2025.12.01-1": WHY} if refused else {},
            counters={"events": 1_234_567_890, "dead_letters": dead},
        )
        found.append(ScorerState(told, told.heartbeat_ms / 1_000, told))
    return found


def lines(width: int, *, refused: bool, wide: bool = False, replicas: tuple[str, ...] = REPLICAS, dead: int = 0) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    console.print(table(NAME, fleet(replicas, refused=refused, dead=dead), NOW, wide=wide))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_scorer_is_one_line_of_80_columns() -> None:
    for refused in (False, True):
        head, _, *rows = lines(80, refused=refused)
        ours = ["2025.12.01-1"] if refused else []
        assert head.split() == ["scorer", "state", "partitions", "lag", "version", *(["refused"] if refused else [])]
        states = [["running"], ["silent", "103", "s"], ["silent", "3", "min"]]
        for row, replica, state in zip(rows, REPLICAS, states, strict=True):
            assert row.split() == [replica, *state, "8", "987,648", "2025.11.05-3", *ours]


def test_dead_letters_have_a_column_if_there_are_any() -> None:
    head, _, *rows = lines(80, refused=False, dead=1_234)
    assert head.split() == ["scorer", "state", "partitions", "lag", "version", "dead"]
    assert rows[0].split()[-2:] == ["2025.11.05-3", "1,234"]


def test_only_a_long_name_folds() -> None:
    pod = "flight-delay-canary-eu-west-1-0"
    rows = lines(80, refused=True, replicas=(pod,))[2:]
    assert "".join(row.split()[0] for row in rows) == pod
    assert rows[0].split()[1:] == ["running", "8", "987,648", "2025.11.05-3", "2025.12.01-1"]


def test_wide_prints_all_columns_on_one_line() -> None:
    _, _, *rows = lines(10_000, refused=True, wide=True)
    assert len(rows) == len(REPLICAS)
    for fact in ("eu-west-1", "sha256:20251105-3", "41", "1,234,567,890", "fraud.payments.authorised.v2[0,3,6", WHY):
        assert fact in rows[0]


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
