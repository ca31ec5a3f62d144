"""The training page: the list of runs, and the page of one run. Pure."""

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

SPANS = 100  # offset ranges that are listed
VERDICTS = ("passed", "refused", "same", UNJUDGED, UNREADABLE)


@dataclass(frozen=True, slots=True)
class TrainingPage:
    """The list of runs, or one requested run.

    Attributes:
        rows: One page of the list.
        newest: The newest run; None if there is none.
        run: The requested run; None if it does not exist or none is requested.
        asked: Whether the query names a run, which may not exist.
        verdicts: The number of runs by verdict.
        left_out: The number of older versions that are not read.
        read: Whether all versions that are not left out were read at least once.
    """

    rows: Page[TrainingRun]
    newest: TrainingRun | None
    run: TrainingRun | None
    asked: bool
    verdicts: Sequence[tuple[str, int]]
    left_out: int
    read: bool


@dataclass(frozen=True, slots=True)
class RunPage:
    """One run with its plots and commands. Plots are SVG texts, empty if there is nothing to plot.

    Attributes:
        spans: The offset ranges of the events and labels that the run read.
        spans_left_out: The number of further offset ranges.
        commands: The element id, the label and the text of each command.
    """

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
    """Return the page that a query requests: all runs, or the run whose version or id is the value of `run`."""
    every = runs(library.versions, channels, trusting=library.trusting)
    asked = query.get("run", "")
    verdict = query.get("show", "")
    rows = page(every, query.get("page"), lambda run: not verdict or run.verdict == verdict)
    run = next((each for each in every if asked and asked in (each.version, each.id)), None)
    counted = Counter(each.verdict for each in every)
    verdicts = [(name, counted[name]) for name in VERDICTS if counted[name]]
    return TrainingPage(rows, every[0] if every else None, run, bool(asked), verdicts, library.left_out, library.read)


def shown(run: TrainingRun, lines: CommandLines) -> RunPage:
    """Return the page of one run, with the commands that `lines` builds."""
    search = run.training.search
    attested = run.attestations.provenance
    provenance = attested.document if attested else None
    spans = [*provenance.named("events"), *provenance.named("labels")] if provenance else []
    commands = [("cli-show", "The run, on the machine that trained it", lines.show(run.id))] if run.id else []
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
        commands=[*commands, ("cli-inspect", "The complete documents", lines.inspect(run.version))],
    )


def _matrices(run: TrainingRun) -> list[tuple[str, str]]:
    """Return the title and the plot of each confusion matrix of a run."""
    # With a comparison these are the matrices of champion and challenger, otherwise that of the evaluation.
    comparison = run.comparison
    if comparison is None:
        attested = run.attestations.evaluation
        evaluated = attested.document.confusion_matrix if attested and attested.document else None
        matrices = [(f"evaluated {run.version}", evaluated)]
    else:
        champion = comparison.champion
        matrices = [(f"champion {champion.version}", champion.confusion_matrix)] if champion else []
        matrices.append((f"challenger {run.version}", comparison.challenger.confusion_matrix))
    return [(title, plots.matrix_of(each)) for title, each in matrices if each is not None]
