"""What the other pages show, and the numbers behind the charts. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from model_registry.channels.history import ChannelMove
from model_registry.channels.roles import CANARY
from model_registry.commands.output import short
from scorer.console.pagination import Page, page
from scorer.console.records import DeadLetter
from scorer.console.rollout_view import tones
from scorer.console.score_distribution_fold import quantiles
from scorer.console.scorer_fold import ScorerState
from scorer.console.state import Channel, ConsoleState
from scorer.evaluation.assessment import Quality
from scorer.evaluation.decision_output import UNKNOWN

ALIKE, ANOTHER = 0.1, 0.25  # population stability index, see distribution.psi


@dataclass(frozen=True, slots=True)
class ScoreDistribution:
    """The sampled scores of a version; `decisions` are shares, the most frequent first."""

    version: str
    tone: int
    count: int
    low: float | None
    middle: float | None
    high: float | None
    decisions: Sequence[tuple[str, float]]
    expired: int
    fallback: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class DistributionShift:
    """How far the scores of the version served now lie from those of the one before."""

    before: str
    now: str
    index: float | None

    @property
    def verdict(self) -> str:
        if self.index is None:
            return "too few scores of both for a comparison"
        return "alike" if self.index < ALIKE else "shifted" if self.index < ANOTHER else "another population"


@dataclass(frozen=True, slots=True)
class Region:
    """The live scorers of a region, by the channel that they follow. `versions` counts scorers, `canaries` too, each with the
    percent of the keys that the channel gives it, None if the channel does not name it now."""

    name: str
    tag: str
    scorers: int
    silent: int
    partitions: int
    rate: float
    lag: int
    versions: Sequence[tuple[str, int]]
    canaries: Sequence[tuple[str, int | None, int]]
    behind: int


@dataclass(frozen=True, slots=True)
class CanaryShare:
    """A canary: its share of the `keys`, and of the `events` sampled at this revision (`found`, None before the first)."""

    version: str
    keys: float
    events: int
    found: float | None


def scores(state: ConsoleState, tag: str) -> tuple[list[ScoreDistribution], DistributionShift | None]:
    """Every sampled version, the one that the channel names first, then by their last scores; and the first two compared."""
    colours, channel = tones(state), state.registry.channels.get(tag)
    serves = channel.version if channel else None
    newest = sorted(state.scores.windows.items(), key=lambda item: (item[0] != serves, -item[1].last_ms))
    rows = []
    for version, window in newest:
        low, middle, high = quantiles(window.numbers) or (None, None, None)
        decided = sum(window.decisions.values()) or 1
        shares = [(name, count / decided) for name, count in window.decisions.most_common(5)]
        rows.append(
            ScoreDistribution(
                version,
                colours.get(version, 0),
                window.seen,
                low,
                middle,
                high,
                shares,
                window.expired,
                window.fallback,
                window.last_ms,
            )
        )
    if len(newest) < 2:
        return rows, None
    now, before = newest[0][0], newest[1][0]
    return rows, DistributionShift(before, now, state.scores.stability(before, now))


def qualities(state: ConsoleState, now: float) -> list[tuple[int, Quality]]:
    """How good each sampled version was on events with a label, with its tone."""
    found, colours = state.labelled.assessed(now), tones(state)
    return [(colours.get(each.version, 0), each) for each in found.versions] if found else []


def label_notes(state: ConsoleState, now: float) -> list[tuple[str, int, str]]:
    """Return why labels and scores are not in the figures: a reason, how many, and an explanation if there is one."""
    found = state.labelled.assessed(now)
    refused = [] if found is None else found.refused.ordered()
    explained = {} if found is None else found.refused.explanations
    notes = [(str(reason), count, explained.get(reason, "")) for reason, count in refused]
    notes += [(str(reason), count, "") for reason, count in sorted(state.labelled.unusable.items())]
    return notes + [(f"scores of {short(digest)}", count, UNKNOWN) for digest, count in sorted(state.outputs.unknown.items())]


def scores_data(state: ConsoleState) -> dict[str, Any]:
    """For the histogram: the edges of the bins, and a line for each version."""
    found, colours = state.scores.histogram(), tones(state)
    lines = [{"label": version, "tone": colours.get(version, 0), "values": shares} for version, shares in found.shares.items()]
    return {"x": found.edges[:-1], "step": found.edges[1] - found.edges[0] if found.edges else 0, "lines": lines}


def flow_data(state: ConsoleState) -> dict[str, Any]:
    """For the charts of the flow: times in Unix seconds, one column a chart's line."""
    points = list(state.flow.points)
    names = ("throughput", "lag_records", "lag_seconds", "scored_p50", "scored_p99", "visible_p50", "fill", "scoring_ms")
    return {"x": [p.at for p in points], "columns": {name: [getattr(p, name) for p in points] for name in names}}


def regions(state: ConsoleState, now: float) -> list[Region]:
    groups: dict[tuple[str, str], list[Any]] = {}
    for heard in state.scorers.listed(now):
        groups.setdefault((heard.status.region, heard.status.tag), []).append(heard)
    rows = []
    for (name, tag), every in sorted(groups.items()):
        live = [h for h in every if h.state(now) == "running"]
        channel = state.registry.channels.get(tag)
        served = [h.champion for h in live if h.champion.version]
        rows.append(
            Region(
                name=name,
                tag=tag,
                scorers=len(live),
                silent=sum(h.state(now) == "silent" for h in every),
                partitions=sum(len(h.status.partitions) for h in live),
                rate=sum(h.rate for h in live),
                lag=sum(h.lag for h in live),
                versions=Counter(version.version for version in served).most_common(),
                canaries=_canaries(live, channel),
                behind=sum(version.revision < channel.revision for version in served) if channel else 0,
            )
        )
    return rows


def _canaries(live: Sequence[ScorerState], channel: Channel | None) -> list[tuple[str, int | None, int]]:
    """Return the canaries that scorers have loaded: version, percent of the keys, and how many scorers."""
    weights = {role.digest: role.weight for role in channel.roles if role.role == CANARY} if channel else {}
    loaded = [heard.status.versions[CANARY] for heard in live if CANARY in heard.status.versions]
    found = Counter((version.version, weights.get(version.digest)) for version in loaded)
    return [(version, weight, count) for (version, weight), count in found.most_common()]


def canary(state: ConsoleState, tag: str) -> CanaryShare | None:
    """Return the canary of a channel, with its share of the keys and of the sampled events; None if it has none."""
    channel = state.registry.channels.get(tag)
    role = next((role for role in channel.roles if role.role == CANARY), None) if channel else None
    if channel is None or role is None:
        return None
    split = state.arms.split(channel.revision)
    return CanaryShare(role.version, role.weight / 100, split.events, split.canary / split.events if split.events else None)


def letters(state: ConsoleState, query: dict[str, str]) -> tuple[Page[DeadLetter], list[tuple[str, int]]]:
    """The letters that a query's reason and words select, and how many wait, by reason."""
    reason, needle = query.get("reason", ""), query.get("q", "").strip().lower()

    def matches(letter: DeadLetter) -> bool:
        return (not reason or letter.reason == reason) and needle in f"{letter.key} {letter.value} {letter.error}".lower()

    return page(list(state.letters.letters), query.get("page"), matches), state.letters.by_reason().most_common()


def history(state: ConsoleState, tag: str, query: dict[str, str]) -> tuple[list[str], str, Page[ChannelMove] | None]:
    """All channels, the one that is asked for (by default the one that is followed), and its moves, the newest first."""
    names = list(state.registry.channels)
    name = query.get("channel", tag)
    channel = state.registry.channels.get(name)
    return names, name, page(list(reversed(channel.moves)), query.get("page")) if channel else None
