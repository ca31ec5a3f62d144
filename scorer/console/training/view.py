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
from scorer.console.training.plots import VersionFigure
from scorer.console.training.run_history import RecordedRun, RunHistory
from scorer.console.training.runs import TONES, DifferenceBar, TrainingRun, runs, slice_bars, with_records
from scorer.console.training.trial_table import TrialTable, trial_table

SPANS = 100  # offset ranges that are listed
CHARTED = 200  # newest versions in the chart of all versions
METRICS = 24  # metrics that can be selected


@dataclass(frozen=True, slots=True)
class TrainingPage:
    """The list of runs, or one requested run.

    Attributes:
        rows: One page of the list.
        newest: The newest run; None if there is none.
        run: The requested run; None if it does not exist or none is requested.
        asked: Whether the query names a run, which may not exist.
        verdicts: The number of runs by verdict.
        chart: The plot of a metric over all versions; empty without versions.
        metric: The name of this metric.
        metrics: The names of the metrics that the chart can show.
        left_out: The number of older versions and runs beyond the limit, which are not read.
        read: Whether all versions, except the older ones in `left_out`, were read at least once.
    """

    rows: Page[TrainingRun]
    newest: TrainingRun | None
    run: TrainingRun | None
    asked: bool
    verdicts: Sequence[tuple[str, int]]
    chart: str
    metric: str
    metrics: Sequence[str]
    left_out: int
    read: bool


@dataclass(frozen=True, slots=True)
class RunRecords:
    """The records of a run for display: plain values that do not change while the run is running.

    Attributes:
        steps: The name of each step, its seconds (None while it is running), and why it failed.
        metric: The name of the metric in the plot of learning curves.
        metrics: The names of the metrics that this plot can show.
        events: The newest events: the time of each (Unix seconds) and its text.
        log: The end of the log of the run.
        failures: The name of each failed trial, the reason and the end of its log.
        trial_seconds: The training time of all trials and of the final model in seconds.
        attempts: The number of processes that have worked on the run.
        dropped: The number of events that the run could not write.
        left_out: The number of records that exceeded a limit of the console.
    """

    key: str
    host: str
    program: str
    began: float
    steps: Sequence[tuple[str, float | None, str]]
    metric: str
    metrics: Sequence[str]
    events: Sequence[tuple[float, str]]
    log: str
    failures: Sequence[tuple[str, str, str]]
    trial_seconds: float
    attempts: int
    dropped: int
    left_out: int


@dataclass(frozen=True, slots=True)
class RunPage:
    """One run with its plots and commands. Plots are SVG texts, empty if there is nothing to plot.

    Attributes:
        records: The records of the run; None without records.
        trials: The trials as a table; None without trials.
        residuals: The plot of the residuals of a regression; empty for a classification.
        spans: The offset ranges of the events and labels that the run read.
        spans_left_out: The number of further offset ranges.
        commands: The element id, the label and the text of each command.
    """

    run: TrainingRun
    rungs: str
    curve: str
    records: RunRecords | None
    trials: TrialTable | None
    residuals: str
    matrices: Sequence[tuple[str, str]]
    rules: Sequence[tuple[RuleResult, str]]
    slices: Sequence[tuple[str, int, DifferenceBar | None]]
    spans: Sequence[ResolvedDependency]
    spans_left_out: int
    provenance: ProvenanceDocument | None
    commands: Sequence[tuple[str, str, str]]


def training(
    library: AttestationLibrary, history: RunHistory, channels: Iterable[Channel], query: dict[str, str], now: float
) -> TrainingPage:
    """Return the page that a query requests: all runs, or the run whose version, id or key is the value of `run`.

    `now` is in Unix seconds.
    """
    every = with_records(runs(library.versions, channels, trusting=library.trusting), history, now)
    asked = query.get("run", "")
    verdict = query.get("show", "")
    rows = page(every, query.get("page"), lambda run: not verdict or run.verdict == verdict)
    run = next((each for each in every if asked and asked in (each.version, each.id, each.key)), None)
    counted = Counter(each.verdict for each in every)
    verdicts = [(name, counted[name]) for name in TONES if counted[name]]
    metrics = _chart_metrics(every)
    metric = query.get("metric", "")
    metric = metric if metric in metrics else next(iter(metrics), "")
    return TrainingPage(
        rows,
        every[0] if every else None,
        run,
        bool(asked),
        verdicts,
        chart="" if asked else plots.versions(_figures(every, metric), metric),
        metric=metric,
        metrics=metrics,
        left_out=library.left_out + history.forgotten,
        read=library.read,
    )


def _chart_metrics(every: Sequence[TrainingRun]) -> list[str]:
    """Return the names of the metrics of the runs' versions; the metric of the newest comparison is first."""
    names = dict.fromkeys(metric.name for run in every for metric in run.metrics if metric.challenger is not None)
    compared = next((run.comparison.metric for run in every if run.comparison), "")
    return sorted(names, key=lambda name: name != compared)[:METRICS]


def _figures(every: Sequence[TrainingRun], metric: str) -> list[VersionFigure]:
    """Return the values of a metric for the newest versions, from the oldest to the newest of them."""
    figures = [
        VersionFigure(run.version, each.challenger, bool(run.promotions) or run.state == "promoted", run.verdict == "refused")
        for run in every
        for each in run.metrics
        if each.name == metric and each.challenger is not None
    ]
    return figures[:CHARTED][::-1]


def shown(run: TrainingRun, lines: CommandLines, query: dict[str, str]) -> RunPage:
    """Return the page of one run, with the commands that `lines` builds.

    The query selects the metric of the curves (`metric`), and the order of the trials (`sort`, and `order=desc`).
    """
    search = run.training.search
    recorded = run.recorded
    metrics = recorded.metrics[:METRICS] if recorded else []
    metric = query.get("metric", "")
    metric = metric if metric in metrics else next(iter(metrics), search.metric if search else "")
    best = search.best.trial if search and search.best else None
    evaluation = run.attestations.evaluation
    residuals = evaluation.document.residuals if evaluation and evaluation.document else None
    attested = run.attestations.provenance
    provenance = attested.document if attested else None
    spans = [*provenance.named("events"), *provenance.named("labels")] if provenance else []
    commands = [("cli-show", "The run in a terminal", lines.show(run.id or run.key))] if run.id or run.key else []
    if recorded:
        commands.append(("cli-log", "Its log", lines.show(run.id or run.key) + " --log"))
    if run.attested:
        commands.append(("cli-inspect", "The complete documents", lines.inspect(run.version)))
    return RunPage(
        run,
        rungs=plots.rungs(search, run.unit) if search else "",
        curve=_curves(run, metric, best),
        records=_records(recorded, metric, metrics) if recorded else None,
        trials=trial_table(recorded, search, metric, query.get("sort", ""), descending=query.get("order") == "desc"),
        residuals=plots.residuals(residuals) if residuals else "",
        matrices=_matrices(run),
        rules=[(rule, plots.gauge(rule)) for rule in run.comparison.rules] if run.comparison else [],
        slices=slice_bars(run),
        spans=spans[:SPANS],
        spans_left_out=max(0, len(spans) - SPANS),
        provenance=provenance,
        commands=commands,
    )


def _curves(run: TrainingRun, metric: str, best: int | None) -> str:
    """Plot the learning curve of each trial: the recorded values of `metric`, or else the scores of the search."""
    recorded = run.recorded
    if recorded and any(trial.points for trial in recorded.trials.values() if not trial.final):
        paths = {trial.trial: trial.curve(metric) for trial in recorded.trials.values() if not trial.final}
        return plots.curves(paths, best, metric, run.unit)
    return plots.curve(run.training.search, run.unit) if run.training.search else ""


def _records(recorded: RecordedRun, metric: str, metrics: Sequence[str]) -> RunRecords:
    started = recorded.started
    return RunRecords(
        key=recorded.key,
        host=started.host if started else "",
        program=f"{started.program}, Python {started.python}" if started else "",
        began=recorded.began_ms / 1_000,
        steps=[(step.step, step.seconds, step.failure) for step in recorded.steps.values()],
        metric=metric,
        metrics=list(metrics),
        events=[(at_ms / 1_000, text) for at_ms, text in recorded.log],
        log=recorded.log_tail,
        failures=[
            ("final training" if trial.final else f"trial {trial.trial}", trial.failure, trial.log_tail)
            for trial in recorded.trials.values()
            if trial.failure
        ],
        trial_seconds=recorded.trial_seconds,
        attempts=len(recorded.attempts),
        dropped=recorded.dropped,
        left_out=recorded.left_out,
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
