"""The report of a run, as one JSON document or as tables for a terminal.

The command `run` reports from the journal of its run; the other commands report from the records of the topic of runs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from model_registry.untrusted_input import json_documents
from model_registry.untrusted_input.terminal_text import printable
from publisher.runtime.command_line import table
from scorer.console.training.run_history import RecordedRun
from scorer.console.training.step_documents import STEP_DOCUMENTS, PlanDocument
from training.pipeline.journal import Journal
from training.pipeline.pipeline import COMMIT, END, STEPS
from training.pipeline.run_dirs import STEPS as FOLDER
from training.pipeline.run_dirs import iso
from training.publish.verify_lineage import DecisionEvidence

UNDER_WAY = "not ended"
HEAD = (
    "run",
    "version",
    "digest",
    "began",
    "attempts",
    "seconds",
    "folder",
    "program",
    "environment",
    "dropped",
    "outcome",
    "because",
)
"""The facts about a run at the top of its report."""


def document(folder: Path) -> dict[str, Any]:
    """Return the journal of the run in this folder as one JSON document.

    The sections of the document have the results of the steps. A section is None if its step is not complete. Raises Fatal
    (exit code 3) if the journal cannot be read.
    """
    journal = Journal(folder / FOLDER)
    entries = {step: entry for step in (*STEPS, COMMIT, END) if (entry := journal.entry(step))}
    results = {step: msgspec.json.decode(entry.result) for step, entry in entries.items()}
    end = results.get(END, {})
    return {
        "folder": str(folder),
        "began": iso(results["plan"]["began_ms"]) if "plan" in results else None,
        "outcome": end.get("outcome", UNDER_WAY),
        "because": end.get("because", ""),
        "steps": [{"step": step, "seconds": entry.seconds} for step, entry in entries.items()],
        **_sections(results),
        "pictures": sorted(str(path) for path in folder.glob("pictures/*.svg")),
    }


def listed(run: RecordedRun, now: float) -> dict[str, Any]:
    """Return the row of a recorded run for the list of runs: times, outcome or state, cost in seconds and reason."""
    return {
        "key": run.key,
        "began": iso(run.began_ms),
        "run": run.id or None,
        "version": run.version or None,
        "outcome": run.state(now),
        "seconds": round(run.seconds, 1),
        "attempts": len(run.attempts),
        "step": run.step,
        "because": _reason(run.because),
    }


def _reason(because: str) -> str:
    """Return the reason of an outcome as one line: of a search in which all trials failed, the failure of the first trial."""
    return " ".join(line.strip() for line in because.splitlines()[:2])


def recorded_document(run: RecordedRun, now: float) -> dict[str, Any]:
    """Return a recorded run as one JSON document, like `document`, with the trials and their metric values."""
    return _recorded(run, now, {step: _readable(run, step) for step in run.steps})


def recorded_tables(run: RecordedRun, now: float) -> Group:
    """Render a recorded run as tables, like `shown`, with the trials."""
    bounded = {step: result for step, type_ in STEP_DOCUMENTS.items() if (result := run.document(step, type_))}
    document = _recorded(run, now, {step: msgspec.to_builtins(each) for step, each in bounded.items()})
    return Group(*_parts(document), *_trials(run))


def log_document(run: RecordedRun, now: float) -> dict[str, Any]:
    """Return the events of a recorded run as lines, and the ends of the logs of the run and of its failed trials."""
    return {
        **listed(run, now),
        "events": [{"at": iso(at_ms), "event": event} for at_ms, event in run.log],
        "log": run.log_tail,
        "failures": [
            {"trial": trial.trial, "final": trial.final, "failure": trial.failure, "log": trial.log_tail}
            for trial in run.trials.values()
            if trial.failure
        ],
    }


def log_text(run: RecordedRun, now: float) -> str:
    """Render the log of a recorded run as text."""
    document = log_document(run, now)
    lines = [f"{run.version or run.key}: {document['outcome']}{': ' if run.because else ''}{run.because}"]
    lines += [f"{event['at']} {event['event']}" for event in document["events"]]
    for failed in document["failures"]:
        name = "final training" if failed["final"] else f"trial {failed['trial']}"
        lines += ["", f"--- {name} failed: {failed['failure']}", *failed["log"].splitlines()]
    if run.log_tail:
        lines += ["", "--- log of the run", *run.log_tail.splitlines()]
    return printable("\n".join(lines), lines=True)


def _recorded(run: RecordedRun, now: float, results: Mapping[str, Any]) -> dict[str, Any]:
    started = run.started
    return {
        **listed(run, now),
        "folder": f"{started.host}:{started.folder}" if started else "",
        "recipe": started.recipe if started else "",
        "seed": started.seed if started else None,
        "program": f"{started.program}, Python {started.python}" if started else "",
        "environment": plan.environment if (plan := run.document("plan", PlanDocument)) else "",
        "dropped": run.dropped,
        "steps": [
            {"step": step.step, "seconds": step.seconds, **({"failure": step.failure} if step.failure else {})}
            for step in run.steps.values()
            if step.seconds is not None
        ],
        **_sections(results),
        "trials": [
            {
                "trial": trial.trial,
                "final": trial.final,
                "budget": trial.budget,
                "parameters": trial.parameters,
                "seconds": round(trial.cost, 3),
                "failure": trial.failure,
                "metrics": [{"budget": budget, **values} for budget, values in sorted(trial.points.items())],
            }
            for trial in run.trials.values()
        ],
        "pictures": [],
    }


def _readable(run: RecordedRun, step: str) -> Any:
    """Return all fields of the recorded result of a step; None if they do not fit the type that the step returns."""
    type_ = STEP_DOCUMENTS.get(step)
    if type_ is not None and run.document(step, type_) is None:
        return None
    return json_documents.ANY.decode_or_none(run.steps[step].result)


def _sections(results: Mapping[str, Any]) -> dict[str, Any]:
    rows = results.get("join") or {}
    frozen = results.get("freeze")
    return {
        "run": rows.get("run"),
        "version": rows.get("version"),
        "digest": (results.get("push") or {}).get("digest"),
        "snapshot": _snapshot(frozen, results.get("copy") or {}) if frozen else None,
        "rows": {name: value for name, value in rows.items() if name not in ("run", "version")} or None,
        "search": results.get("search"),
        "export": results.get("export"),
        "evaluation": results.get("evaluate"),
        "comparison": results.get("gate"),
        "promotion": results.get("promote"),
    }


def _snapshot(frozen: Mapping[str, Any], copied: Mapping[str, Any]) -> dict[str, Any]:
    return {"frozen": iso(frozen.get("now_ms", 0)), "cluster": frozen.get("cluster_id"), **copied}


def _trials(run: RecordedRun) -> Iterator[RenderableType]:
    if not run.trials:
        return
    metric = run.metric or next(iter(run.metrics), "")  # as on the console, while the search runs with its default metric
    names = list(dict.fromkeys(name for trial in run.trials.values() for name in trial.parameters))
    rows = [
        (
            "final" if trial.final else trial.trial,
            _figure(dict(trial.curve(metric)).get(trial.budget)),
            trial.budget,
            f"{trial.cost:.1f}",
            *(str(trial.parameters.get(name, "")) for name in names),
            trial.failure,
        )
        for trial in sorted(run.trials.values(), key=lambda trial: (trial.final, trial.trial))
    ]
    yield table(("trial", metric or "score", "trained to", "seconds", *names, "failure"), rows)


def shown(document: Mapping[str, Any]) -> Group:
    """Render the document of a run as tables. Steps that are not complete are omitted."""
    return Group(*_parts(document))


def _parts(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    head = Table.grid(padding=(0, 2))
    for name in HEAD:
        if document.get(name):
            head.add_row(name, str(document[name]))
    yield head
    if document["rows"] and document["snapshot"]:
        yield from _rows(document["rows"], document["snapshot"])
    if document["search"]:
        yield from _search(document["search"])
    if document["comparison"]:
        yield from _comparison(document["comparison"])
    seconds_by_step = [(step["step"], f"{step['seconds']:.1f}") for step in document["steps"]]
    yield table(("step", "seconds"), seconds_by_step)
    yield from document["pictures"]


def _minute(unix_ms: int) -> str:
    """Format a Unix time in milliseconds to the minute in UTC: short, so that a narrow terminal shows it completely."""
    return iso(unix_ms)[:16].replace("T", " ")


def _rows(rows: Mapping[str, Any], snapshot: Mapping[str, Any]) -> Iterator[RenderableType]:
    counts = [
        ("events copied", f"{snapshot['events']:,}", ""),
        ("labels copied", f"{snapshot['labels']:,}", ""),
        ("old enough to have a label", f"{rows['mature']:,}", ""),
        ("with a label", f"{rows['labelled']:,}", f"{rows['coverage']:.1%}"),
        *(_left_out("events left out", name, rows["left_out"]) for name in rows["left_out"]["counts"]),
        *(_left_out("labels", name, rows["labels"]) for name in rows["labels"]["counts"]),
    ]
    yield table(("", "", ""), counts)
    parts = [
        (
            part["part"],
            _minute(part["from_ms"]),
            _minute(part["to_ms"]),
            f"{part['rows']:,}",
            *map("{:,}".format, part["classes"].values()),
            *map("{:.5g}".format, part.get("outcomes", {}).values()),
        )
        for part in rows["parts"]
    ]
    yield table(("part", "from", "to", "events", *rows["classes"], *rows.get("outcomes", {})), parts)


def _left_out(kind: str, reason: str, tally: Mapping[str, Any]) -> tuple[str, str, str]:
    first = tally["first"].get(reason)
    return f"{kind}: {reason}", f"{tally['counts'][reason]:,}", f"first: {first}" if first else ""


def _search(results: Mapping[str, Any]) -> Iterator[RenderableType]:
    better = min if results.get("goal") == "min" else max
    rungs = [
        (rung["budget"], len(rung["trials"]), _figure(_best(rung["trials"], better)), len(rung["kept"]))
        for rung in results["rungs"]
    ]
    yield table(("trained to", "trials", f"best {results['metric']}", "go on"), rungs)
    if best := results["best"]:
        parameters = ", ".join(f"{name} {value}" for name, value in best["parameters"].items())
        yield Text(f"best: trial {best['trial']} at {best['budget']}: {parameters}")
    for failure in results.get("failures", ()):
        yield Text(f"trial {failure['trial']} failed at {failure['budget']}: {failure['reason']}")
        yield Text("\n".join(f"    {line}" for line in failure["log"].splitlines()))


def _best(trials: Iterable[Mapping[str, Any]], better: Callable[..., float | None]) -> float | None:
    return better((score for trial in trials if (score := trial["score"]) is not None), default=None)


def comparison(results: Mapping[str, Any]) -> Group:
    """Render the comparison of two versions: their metrics side by side, and each rule with its value and bound."""
    return Group(*_comparison(results))


def _comparison(results: Mapping[str, Any]) -> Iterator[RenderableType]:
    sides = [(name, side) for name in ("champion", "challenger") if (side := results[name])]
    metrics = sides[-1][1]["metrics"]
    yield table(
        ("", *(f"{name} {side['version']}" for name, side in sides)),
        [_metric(metric, [side for _, side in sides]) for metric in metrics],
    )
    rules = [
        (rule["name"], _figure(rule["value"]), _figure(rule["bound"]), "yes" if rule["passed"] else "NO")
        for rule in results["rules"]
    ]
    yield table(("rule", "value", "bound", "passed"), rules)
    yield f"{results['verdict']}: {results['because']}"


def _metric(name: str, sides: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the row of a metric: its name, and its value for each version. A coverage has its level and its interval."""
    coverages = [side.get("interval_coverage") for side in sides]
    figures = [_figure(side["metrics"].get(name)) for side in sides]
    if name != "interval_coverage" or coverages[-1] is None:
        return name, *figures
    title = f"{name} (level {coverages[-1]['level']:g})"
    bounds = [f" ({_figure(each['low'])} to {_figure(each['high'])})" if each else "" for each in coverages]
    return title, *(figure + interval for figure, interval in zip(figures, bounds, strict=True))


def _figure(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else "" if value is None else str(value)


def evidence(lineage: DecisionEvidence) -> Group:
    """Render the attested evidence about a version: its training data, seed and recipe, and the comparison with its verdict."""
    champion = lineage.champion
    head = Table.grid(padding=(0, 2))
    for name, value in (
        ("version", lineage.digest),
        ("run", lineage.run),
        ("seed", lineage.seed),
        ("recipe", lineage.recipe),
        ("parameters", ", ".join(f"{name} {value}" for name, value in lineage.parameters.items())),
        ("environment", lineage.environment),
        ("dataset", lineage.dataset),
        ("judged on", f"{lineage.count} rows, {lineage.rows}"),
        ("champion", f"{champion.version}, {champion.digest}, revision {champion.revision}" if champion else "none"),
        ("verdict", f"{lineage.verdict}: {lineage.because}"),
        ("signed by", ", ".join(dict.fromkeys(lineage.keys))),
    ):
        head.add_row(name, str(value))
    spans = [(span.kind, span.cluster, span.topic, span.partition, span.begin, span.end) for span in lineage.spans]
    return Group(head, table(("records", "cluster", "topic", "partition", "from", "to"), spans))
