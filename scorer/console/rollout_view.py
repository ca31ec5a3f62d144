"""What the first page shows: the channel that the scorers follow, how far its newest move has come, and who runs what. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from model_registry.channels.history import Move
from scorer.console.paging import Page, page
from scorer.console.records import SwapRecord
from scorer.console.scorers import Heard
from scorer.console.state import Channel, State
from scorer.rollout.progress import FLIPPED, REFUSED, WAITING, Verdict

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
class Square:
    """One partition and the version that scored it last."""

    place: str
    version: str
    offset: int
    tone: int


@dataclass(frozen=True, slots=True)
class Row:
    """A scorer in the table. `outcome` is flipped, waiting or refused in the newest move; `heard` seconds ago."""

    scorer: str
    region: str
    state: str
    tag: str
    version: str
    digest: str
    revision: int
    outcome: str
    partitions: int
    lag: int
    rate: float
    heard: float
    reason: str


@dataclass(frozen=True, slots=True)
class Rollout:
    channel: Channel | None
    move: Move | None
    verdict: Verdict | None
    counts: Counter[str]
    refusals: Sequence[tuple[str, str]]
    served: Sequence[ServedVersion]
    squares: Sequence[Square]
    squares_left_out: int
    flips: Sequence[SwapRecord]
    rows: Page[Row]
    live: int
    states: Counter[str]
    forgotten: int


def tones(state: State) -> dict[str, int]:
    """A number for each version, the same on every page: by where it stands among the registry's versions."""
    known = [*state.registry.versions, *state.scores.windows, *(r.version for r in state.swaps.recent)]
    return {version: number for number, version in enumerate(dict.fromkeys(known))}


def rollout(state: State, tag: str, query: dict[str, str], now: float) -> Rollout:
    """The page of the channel `tag` at `now` (Unix seconds). `query` may filter the table: q, show, page."""
    channel = state.registry.channels.get(tag)
    move = channel.move if channel else None
    verdict = state.scorers.verdict(move, now) if move else None
    colours = tones(state)
    outcomes = {s.scorer: (s.outcome, s.reason) for s in verdict.scorers} if verdict else {}
    listed = state.scorers.listed(now)
    rows = [_row(heard, outcomes, now) for heard in listed]
    needle, show = query.get("q", "").strip().lower(), query.get("show", "")

    def matches(row: Row) -> bool:
        text = f"{row.scorer} {row.region} {row.version} {row.digest} {row.tag}".lower()
        return needle in text and (not show or show in (row.outcome, row.state))

    squares, left_out = _squares(state, colours)
    return Rollout(
        channel=channel,
        move=move,
        verdict=verdict,
        counts=Counter(outcome for outcome, _ in outcomes.values()),
        refusals=[(row.scorer, row.reason) for row in rows if row.outcome == REFUSED][:REASONS],
        served=_served(state.scorers.live(now), colours),
        squares=squares,
        squares_left_out=left_out,
        flips=list(state.swaps.recent)[:FLIPS],
        rows=page(rows, query.get("page"), matches),
        live=sum(row.state == "running" for row in rows),
        states=Counter(row.state for row in rows),
        forgotten=len(state.scorers.last) - len(listed),
    )


def headline(view: Rollout) -> tuple[str, str]:
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


def _row(heard: Heard, outcomes: dict[str, tuple[str, str]], now: float) -> Row:
    status = heard.status
    serves = status.versions.get("champion")
    outcome, reason = outcomes.get(status.scorer, ("", ""))
    return Row(
        scorer=status.scorer,
        region=status.region,
        state=heard.state(now),
        tag=status.tag,
        version=serves.version if serves else "",
        digest=serves.digest if serves else "",
        revision=serves.revision if serves else 0,
        outcome=outcome,
        partitions=len(status.partitions),
        lag=sum(p.lag for p in status.partitions),
        rate=heard.rate,
        heard=max(0.0, now - heard.heard),
        reason=reason,
    )


def _served(live: Sequence[Heard], colours: dict[str, int]) -> list[ServedVersion]:
    scorers: Counter[tuple[str, str]] = Counter()
    partitions: Counter[tuple[str, str]] = Counter()
    for heard in live:
        serves = heard.status.versions.get("champion")
        if serves is not None:
            scorers[serves.version, serves.digest] += 1
            partitions[serves.version, serves.digest] += len(heard.status.partitions)
    total = sum(partitions.values()) or 1
    return [
        ServedVersion(*what, scorers[what], partitions[what], partitions[what] / total, colours.get(what[0], 0))
        for what in sorted(scorers, key=lambda what: -partitions[what])
    ]


def _squares(state: State, colours: dict[str, int]) -> tuple[list[Square], int]:
    every = sorted(state.swaps.last.values(), key=lambda record: record.place)
    shown = [
        Square(f"{r.topic}[{r.partition}]", r.version, r.cut_over_offset, colours.get(r.version, 0)) for r in every[:SQUARES]
    ]
    return shown, max(0, len(every) - SQUARES)
