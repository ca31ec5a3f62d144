"""What the first page shows: the channel that the scorers follow, how far its newest move has come, and who runs what. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from model_registry.channels.history import ChannelMove
from scorer.console.pagination import Page, page
from scorer.console.records import VersionChange
from scorer.console.scorer_fold import ScorerState
from scorer.console.state import Channel, ConsoleState
from scorer.rollout.fleet_status import FLIPPED, REFUSED, WAITING, Verdict

SQUARES = 600  # partitions that are drawn one by one
FLIPS = 12  # newest cut-overs on the first page
REASONS = 5  # refusals that are spelt out


@dataclass(frozen=True, slots=True)
class ServedVersion:
    """A version and who serves it: live scorers, partitions that they have; `tone` is its colour's number."""

    version: str
    digest: str
    scorers: int
    partitions: int
    share: float
    tone: int


@dataclass(frozen=True, slots=True)
class PartitionSquare:
    """One partition and the version that scored it last."""

    place: str
    version: str
    offset: int
    tone: int


@dataclass(frozen=True, slots=True)
class ScorerRow:
    """A scorer in the table, heard of `silent` seconds ago. `outcome` is flipped, waiting or refused in the newest move."""

    heard: ScorerState
    state: str
    outcome: str
    reason: str
    silent: float


@dataclass(frozen=True, slots=True)
class ChannelView:
    channel: Channel | None
    move: ChannelMove | None
    verdict: Verdict | None
    counts: Counter[str]
    refusals: Sequence[tuple[str, str]]
    served: Sequence[ServedVersion]
    squares: Sequence[PartitionSquare]
    squares_left_out: int
    flips: Sequence[VersionChange]
    rows: Page[ScorerRow]
    states: Counter[str]


def tones(state: ConsoleState) -> dict[str, int]:
    """A number for each version, the same on every page: by where it stands among the registry's versions."""
    known = [*state.registry.versions, *state.scores.windows, *(r.version for r in state.swaps.recent)]
    return {version: number for number, version in enumerate(dict.fromkeys(known))}


def channel_view(state: ConsoleState, tag: str, query: dict[str, str], now: float) -> ChannelView:
    """The page of the channel `tag` at `now` (Unix seconds). `query` may filter the table: q, show, page."""
    channel = state.registry.channels.get(tag)
    move = channel.move if channel else None
    verdict = state.scorers.verdict(move, now) if move else None
    colours = tones(state)
    outcomes = {s.scorer: (s.outcome, s.reason) for s in verdict.scorers} if verdict else {}
    rows = [
        ScorerRow(heard, heard.state(now), *outcomes.get(heard.status.scorer, ("", "")), max(0.0, now - heard.heard))
        for heard in state.scorers.listed(now)
    ]
    needle, show = query.get("q", "").strip().lower(), query.get("show", "")

    def matches(row: ScorerRow) -> bool:
        status, champion = row.heard.status, row.heard.champion
        text = f"{status.scorer} {status.region} {champion.version} {champion.digest} {status.tag}".lower()
        return needle in text and (not show or show in (row.outcome, row.state))

    last = sorted(state.swaps.last.values(), key=lambda record: record.place)
    return ChannelView(
        channel=channel,
        move=move,
        verdict=verdict,
        counts=Counter(outcome for outcome, _ in outcomes.values()),
        refusals=[(row.heard.status.scorer, row.reason) for row in rows if row.outcome == REFUSED][:REASONS],
        served=_served(state.scorers.live(now), colours),
        squares=[
            PartitionSquare(f"{r.topic}[{r.partition}]", r.version, r.cut_over_offset, colours.get(r.version, 0))
            for r in last[:SQUARES]
        ],
        squares_left_out=max(0, len(last) - SQUARES),
        flips=list(state.swaps.recent)[:FLIPS],
        rows=page(rows, query.get("page"), matches),
        states=Counter(row.state for row in rows),
    )


def headline(view: ChannelView) -> tuple[str, str]:
    """The state of the newest move in one word for the colour, and in one sentence."""
    if view.move is None or view.verdict is None:
        return "idle", "no move of this channel is known"
    counts, total = view.counts, sum(view.counts.values())
    if not total:
        return WAITING, "no live scorer follows this channel"
    if view.verdict.outcome == FLIPPED:
        partitions = sum(s.partitions for s in view.verdict.scorers)
        return FLIPPED, f"every scorer serves it: {plural(total, 'scorer')}, {plural(partitions, 'partition')}"
    if counts[REFUSED]:
        return REFUSED, f"{counts[REFUSED]} of {plural(total, 'scorer')} refused it; what ran before goes on there"
    if view.verdict.missing and not counts[WAITING]:
        return WAITING, f"{plural(len(view.verdict.missing), 'partition')} without a scorer"
    return WAITING, f"{counts[FLIPPED]} of {plural(total, 'scorer')} serve it"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _served(live: Sequence[ScorerState], colours: dict[str, int]) -> list[ServedVersion]:
    scorers: Counter[tuple[str, str]] = Counter()
    partitions: Counter[tuple[str, str]] = Counter()
    for heard in live:
        if heard.champion.version:
            what = heard.champion.version, heard.champion.digest
            scorers[what] += 1
            partitions[what] += len(heard.status.partitions)
    total = sum(partitions.values()) or 1
    return [
        ServedVersion(*what, scorers[what], partitions[what], partitions[what] / total, colours.get(what[0], 0))
        for what in sorted(scorers, key=lambda what: -partitions[what])
    ]
