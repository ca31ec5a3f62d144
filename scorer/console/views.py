"""The views of the pages for scores, throughput, regions, dead letters and history, and the data of the charts. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from model_registry.channels.history import ChannelMove
from model_registry.channels.roles import CANARY
from model_registry.oci.digests import short
from scorer.console.channel_view import tones
from scorer.console.pagination import Page, page
from scorer.console.records import DeadLetter
from scorer.console.score_distribution_fold import quantiles
from scorer.console.scorer_fold import ScorerState
from scorer.console.state import Channel, ConsoleState
from scorer.evaluation.assessment import Quality
from scorer.evaluation.decision_output import UNKNOWN

# usual limits of the population stability index
SIMILAR = 0.1
DIFFERENT = 0.25


@dataclass(frozen=True, slots=True)
class ScoreDistribution:
    """The distribution of the sampled scores of a version.

    Attributes:
        tone: The number of the version's colour.
        count: The number of sampled scores.
        low: The 5 % quantile of the scores; None without scores.
        middle: The median; None without scores.
        high: The 95 % quantile; None without scores.
        decisions: The most frequent decisions with their shares.
        expired: The number of expired events, which have no score.
        fallback: The number of fallback scores, which the version did not compute.
        last_ms: The time of the newest score in Unix ms.
    """

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
    """The population stability index between the scores of the previous and the current version; None with too few scores."""

    before: str
    now: str
    index: float | None

    @property
    def verdict(self) -> str:
        """The population stability index in words: similar, shifted or different."""
        if self.index is None:
            return "too few scores of both versions to compare"
        if self.index < SIMILAR:
            return "similar"
        return "shifted" if self.index < DIFFERENT else "different"


@dataclass(frozen=True, slots=True)
class Region:
    """The scorers of one region that follow one channel.

    Attributes:
        tag: The tag or channel that the scorers follow.
        scorers: The number of running scorers.
        silent: The number of scorers without a recent heartbeat.
        versions: Each champion version with the number of scorers that serve it.
        canaries: Each canary with its percentage of the keys (None if the channel no longer names it) and its number of
            scorers.
        behind: The number of scorers that do not serve the channel's newest revision.
    """

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
    """The canary of a channel.

    Attributes:
        keys: The canary's planned share of the keys.
        events: The number of sampled events that were scored at the current revision of the channel.
        measured: The part of these events that the canary answered, from 0 to 1; None if there are no such events.
    """

    version: str
    keys: float
    events: int
    measured: float | None


def scores(state: ConsoleState, tag: str) -> tuple[list[ScoreDistribution], DistributionShift | None]:
    """Return the distribution of each sampled version, and the shift between the first two of these versions.

    The champion of the channel `tag` is first, the others follow by the time of their last scores, the newest first. The shift
    is None if there are fewer than two versions.
    """
    colours = tones(state)
    channel = state.registry.channels.get(tag)
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
    now = newest[0][0]
    before = newest[1][0]
    return rows, DistributionShift(before, now, state.scores.stability(before, now))


def qualities(state: ConsoleState, now: float) -> list[tuple[int, Quality]]:
    """Return each sampled version's colour number, and its quality on the labelled events."""
    assessment = state.labelled.assessed(now)
    colours = tones(state)
    return [(colours.get(each.version, 0), each) for each in assessment.versions] if assessment else []


def label_notes(state: ConsoleState, now: float) -> list[tuple[str, int, str]]:
    """Return the reasons why labels and scores are excluded from the quality figures.

    Each entry has the reason, the number of excluded labels or scores, and an explanation ("" without one).
    """
    assessment = state.labelled.assessed(now)
    refused = [] if assessment is None else assessment.refused.ordered()
    explanations = {} if assessment is None else assessment.refused.explanations
    notes = [(str(reason), count, explanations.get(reason, "")) for reason, count in refused]
    notes += [(str(reason), count, "") for reason, count in sorted(state.labelled.unusable.items())]
    return notes + [(f"scores of {short(digest)}", count, UNKNOWN) for digest, count in sorted(state.outputs.unknown.items())]


def scores_data(state: ConsoleState) -> dict[str, Any]:
    """Return the data of the histogram of scores: the lower edges of the bins, their width, and one line for each version."""
    histogram = state.scores.histogram()
    colours = tones(state)
    lines = [
        {"label": version, "tone": colours.get(version, 0), "values": shares} for version, shares in histogram.shares.items()
    ]
    edges = histogram.edges
    return {"x": edges[:-1], "step": edges[1] - edges[0] if edges else 0, "lines": lines}


def flow_data(state: ConsoleState) -> dict[str, Any]:
    """Return the data of the throughput charts: times in Unix seconds, and one column of values for each line of a chart."""
    points = list(state.flow.points)
    names = ("throughput", "lag_records", "lag_seconds", "scored_p50", "scored_p99", "visible_p50", "fill", "scoring_ms")
    return {"x": [p.at for p in points], "columns": {name: [getattr(p, name) for p in points] for name in names}}


def regions(state: ConsoleState, now: float) -> list[Region]:
    """Return a row for each combination of a region and a channel that scorers of the region follow."""
    groups: dict[tuple[str, str], list[Any]] = {}
    for scorer in state.scorers.listed(now):
        groups.setdefault((scorer.status.region, scorer.status.tag), []).append(scorer)
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
    """Return each loaded canary with its percentage of the keys and its number of scorers.

    The percentage is None if the channel does not name the canary.
    """
    weights = {role.digest: role.weight for role in channel.roles if role.role == CANARY} if channel else {}
    loaded = [each.status.versions[CANARY] for each in live if CANARY in each.status.versions]
    counts = Counter((version.version, weights.get(version.digest)) for version in loaded)
    return [(version, weight, count) for (version, weight), count in counts.most_common()]


def canary(state: ConsoleState, tag: str) -> CanaryShare | None:
    """Return the canary of a channel with its planned and measured shares; None if the channel has no canary."""
    channel = state.registry.channels.get(tag)
    role = next((role for role in channel.roles if role.role == CANARY), None) if channel else None
    if channel is None or role is None:
        return None
    split = state.arms.split(channel.revision)
    return CanaryShare(role.version, role.weight / 100, split.events, split.canary / split.events if split.events else None)


def letters(state: ConsoleState, query: dict[str, str]) -> tuple[Page[DeadLetter], list[tuple[str, int]]]:
    """Return a page of the dead letters that match the query.

    The second value has, for each reason, the number of dead letters that can be replayed and have not been replayed.
    """
    reason = query.get("reason", "")
    needle = query.get("q", "").strip().lower()

    def matches(letter: DeadLetter) -> bool:
        return (not reason or letter.reason == reason) and needle in f"{letter.key} {letter.value} {letter.error}".lower()

    return page(list(state.letters.letters), query.get("page"), matches), state.letters.by_reason().most_common()


def history(state: ConsoleState, tag: str, query: dict[str, str]) -> tuple[list[str], str, Page[ChannelMove] | None]:
    """Return the names of all channels, the requested name, and a page of that channel's moves, the newest first.

    The followed channel is the default. The page is None if the channel does not exist.
    """
    names = list(state.registry.channels)
    name = query.get("channel", tag)
    channel = state.registry.channels.get(name)
    return names, name, page(list(reversed(channel.moves)), query.get("page")) if channel else None
