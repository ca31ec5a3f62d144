"""The view of the console's first page: the followed channel, the progress of its newest move, and the scorers. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from model_registry.channels.history import ChannelMove
from scorer.console.pagination import Page, page
from scorer.console.records import VersionChange
from scorer.console.scorer_fold import ScorerState
from scorer.console.state import Channel, ConsoleState
from scorer.rollout.fleet_status import FLIPPED, REFUSED, WAITING, MoveProgress

SQUARES = 600  # partitions that are drawn
FLIPS = 12  # newest version changes that are listed
REASONS = 5  # refusals that are listed


@dataclass(frozen=True, slots=True)
class ServedVersion:
    """A champion version that scorers serve.

    Attributes:
        scorers: The number of live scorers that serve the version.
        partitions: The number of partitions that these scorers own.
        share: These partitions as a share of all served partitions.
        tone: The number of the colour in which the page shows the version.
    """

    version: str
    digest: str
    scorers: int
    partitions: int
    share: float
    tone: int


@dataclass(frozen=True, slots=True)
class PartitionSquare:
    """A square for one partition, with its newest champion version and the first offset that this version scored."""

    place: str
    version: str
    offset: int
    tone: int


@dataclass(frozen=True, slots=True)
class ScorerRow:
    """A row of the table of scorers.

    Attributes:
        state: Running, silent or stopped.
        outcome: How far the scorer has applied the channel's newest move: flipped (it serves the new version), waiting or
            refused; empty for a scorer that the move does not concern.
        reason: Why the scorer refuses the new version; empty if it does not.
        silent: The seconds since the scorer's last record.
    """

    scorer: ScorerState
    state: str
    outcome: str
    reason: str
    silent: float


@dataclass(frozen=True, slots=True)
class ChannelView:
    """The followed channel, its newest move, and the scorers.

    Attributes:
        verdict: How far the scorers have applied the newest move; None without a move.
        counts: The number of scorers by the outcome of the newest move: flipped, waiting or refused.
        refusals: The names of scorers that refuse the new version, with their reasons.
        served: The champion versions that live scorers serve.
        squares: The partitions that the page shows as squares, with their newest champion versions.
        squares_left_out: The number of partitions that are not in `squares`.
        flips: The newest version changes of partitions.
        rows: One page of the table of scorers.
        states: The number of scorers by state: running, silent or stopped.
    """

    channel: Channel | None
    move: ChannelMove | None
    verdict: MoveProgress | None
    counts: Counter[str]
    refusals: Sequence[tuple[str, str]]
    served: Sequence[ServedVersion]
    squares: Sequence[PartitionSquare]
    squares_left_out: int
    flips: Sequence[VersionChange]
    rows: Page[ScorerRow]
    states: Counter[str]


def tones(state: ConsoleState) -> dict[str, int]:
    """Return the colour number of each version, which is the same on every page."""
    # The number is the index of the version in the list of all known versions, with the versions of the registry first.
    versions = [*state.registry.versions, *state.scores.windows, *(r.version for r in state.swaps.recent)]
    return {version: number for number, version in enumerate(dict.fromkeys(versions))}


def channel_view(state: ConsoleState, tag: str, query: dict[str, str], now: float) -> ChannelView:
    """Return the view of the channel `tag` at `now` (Unix seconds).

    The keys `q`, `show` and `page` of `query` select the rows of the table of scorers.
    """
    channel = state.registry.channels.get(tag)
    move = channel.move if channel else None
    verdict = state.scorers.verdict(move, now) if move else None
    colours = tones(state)
    outcomes = {s.scorer: (s.outcome, s.reason) for s in verdict.scorers} if verdict else {}
    rows = [
        ScorerRow(each, each.state(now), *outcomes.get(each.status.scorer, ("", "")), max(0.0, now - each.last_seen))
        for each in state.scorers.listed(now)
    ]
    needle = query.get("q", "").strip().lower()
    show = query.get("show", "")

    def matches(row: ScorerRow) -> bool:
        status = row.scorer.status
        champion = row.scorer.champion
        text = f"{status.scorer} {status.region} {champion.version} {champion.digest} {status.tag}".lower()
        return needle in text and (not show or show in (row.outcome, row.state))

    last = sorted(state.swaps.last.values(), key=lambda record: record.place)
    return ChannelView(
        channel=channel,
        move=move,
        verdict=verdict,
        counts=Counter(outcome for outcome, _ in outcomes.values()),
        refusals=[(row.scorer.status.scorer, row.reason) for row in rows if row.outcome == REFUSED][:REASONS],
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
    """Return the state of the newest move as one word, which selects the colour, and as one sentence."""
    if view.move is None or view.verdict is None:
        return "idle", "this channel has no recorded move"
    counts = view.counts
    total = sum(view.counts.values())
    if not total:
        return WAITING, "no live scorer follows this channel"
    if view.verdict.outcome == FLIPPED:
        partitions = sum(s.partitions for s in view.verdict.scorers)
        return FLIPPED, f"every scorer serves it: {plural(total, 'scorer')}, {plural(partitions, 'partition')}"
    if counts[REFUSED]:
        return REFUSED, f"{counts[REFUSED]} of {plural(total, 'scorer')} refused it and continue with their previous version"
    if view.verdict.missing and not counts[WAITING]:
        return WAITING, f"{plural(len(view.verdict.missing), 'partition')} without a scorer"
    return WAITING, f"{counts[FLIPPED]} of {plural(total, 'scorer')} serve it"


def plural(count: int, noun: str) -> str:
    """Format a count with its noun, in the plural unless the count is 1."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _served(live: Sequence[ScorerState], colours: dict[str, int]) -> list[ServedVersion]:
    scorers: Counter[tuple[str, str]] = Counter()
    partitions: Counter[tuple[str, str]] = Counter()
    for scorer in live:
        if scorer.champion.version:
            version = scorer.champion.version, scorer.champion.digest
            scorers[version] += 1
            partitions[version] += len(scorer.status.partitions)
    total = sum(partitions.values()) or 1
    return [
        ServedVersion(*version, scorers[version], partitions[version], partitions[version] / total, colours.get(version[0], 0))
        for version in sorted(scorers, key=lambda each: -partitions[each])
    ]
