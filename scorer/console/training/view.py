"""The training page: the runs that a query selects, and everything about one of them. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scorer.console.command_lines import CommandLines
from scorer.console.pagination import Page, page
from scorer.console.state import Channel
from scorer.console.training import plots
from scorer.console.training.attestations import AttestationLibrary
from scorer.console.training.documents import ProvenanceDocument, ResolvedDependency, RuleResult
from scorer.console.training.runs import UNJUDGED, UNREADABLE, DifferenceBar, TrainingRun, runs, slice_bars

SPANS = 100  # stretches of partitions that are shown
VERDICTS = ("passed", "refused", "same", UNJUDGED, UNREADABLE)


@dataclass(frozen=True, slots=True)
class TrainingPage:
    """`run` is the one that is asked for, `newest` the newest of all. `verdicts` counts all runs by verdict; `left_out` are
    versions that were not looked at; `asked` says that the query names a run."""

    rows: Page[TrainingRun]
    newest: TrainingRun | None
    run: TrainingRun | None
    asked: bool
    verdicts: Sequence[tuple[str, int]]
    left_out: int
    read: bool


@dataclass(frozen=True, slots=True)
class RunPage:
    """One run with its pictures (the text of an SVG each, "" where there is nothing to draw) and the commands that say more.
    `spans` are the stretches of topics that its rows come from, `spans_left_out` how many are not shown. Of a command there are
    the id of its element, what it shows, and its text."""

    run: TrainingRun
    rungs: str
    curve: str
    matrices: Sequence[tuple[str, str]]
    rules: Sequence[tuple[RuleResult, str]]
    slices: Sequence[tuple[str, int, DifferenceBar | None]]
    spans: Sequence[ResolvedDependency]
    spans_left_out: int
    provenance: ProvenanceDocument | None
    commands: Sequence[tuple[str, str, str]]


def training(library: AttestationLibrary, channels: Iterable[Channel], query: dict[str, str]) -> TrainingPage:
    """The page of all runs that a query asks for; with `run`, that of one of them, by its version or its id."""
    every = runs(library.versions, channels, trusting=library.trusting)
    asked, verdict = query.get("run", ""), query.get("show", "")
    rows = page(every, query.get("page"), lambda run: not verdict or run.verdict == verdict)
    run = next((each for each in every if asked and asked in (each.version, each.id)), None)
    counted = Counter(each.verdict for each in every)
    verdicts = [(name, counted[name]) for name in VERDICTS if counted[name]]
    return TrainingPage(rows, every[0] if every else None, run, bool(asked), verdicts, library.left_out, library.read)


def shown(run: TrainingRun, lines: CommandLines) -> RunPage:
    """Everything about one run."""
    search, told = run.made.search, run.evidence.provenance
    provenance = told.said if told else None
    spans = [*provenance.named("events"), *provenance.named("labels")] if provenance else []
    commands = [("cli-show", "The run, on the machine that made it", lines.show(run.id))] if run.id else []
    return RunPage(
        run,
        rungs=plots.rungs(search, run.unit) if search else "",
        curve=plots.curve(search, run.unit) if search else "",
        matrices=_matrices(run),
        rules=[(rule, plots.gauge(rule)) for rule in run.comparison.rules] if run.comparison else [],
        slices=slice_bars(run),
        spans=spans[:SPANS],
        spans_left_out=max(0, len(spans) - SPANS),
        provenance=provenance,
        commands=[*commands, ("cli-inspect", "Every document, whole", lines.inspect(run.version))],
    )


def _matrices(run: TrainingRun) -> list[tuple[str, str]]:
    """Champion's and challenger's, with who each is of; without a comparison that of the evaluation."""
    found = run.comparison
    if found is None:
        told = run.evidence.evaluation
        alone = told.said.confusion_matrix if told and told.said else None
        named = [(f"evaluated {run.version}", alone)]
    else:
        champion = [(f"champion {found.champion.version}", found.champion.confusion_matrix)] if found.champion else []
        named = [*champion, (f"challenger {run.version}", found.challenger.confusion_matrix)]
    return [(title, plots.matrix_of(each)) for title, each in named if each is not None]
