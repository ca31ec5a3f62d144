"""The report of a run, as one JSON document or as tables for a terminal."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from publisher.runtime.command_line import table
from training.pipeline.journal import Journal
from training.pipeline.pipeline import COMMIT, END, STEPS
from training.pipeline.run_dirs import STEPS as FOLDER
from training.pipeline.run_dirs import iso
from training.publish.verify_lineage import DecisionEvidence
from training.snapshot.files import Frozen

UNDER_WAY = "not ended"


def document(folder: Path) -> dict[str, Any]:
    """Return the journal of the run in this folder as one JSON document.

    The document has one key for each step. Its value is None if the step is not complete. Raises Fatal (exit code 3) if the
    journal cannot be read.
    """
    journal = Journal(folder / FOLDER)
    entries = {step: entry for step in (*STEPS, COMMIT, END) if (entry := journal.entry(step))}
    results = {step: msgspec.json.decode(entry.result) for step, entry in entries.items()}
    rows = results.get("join", {})
    end = results.get(END, {})
    return {
        "folder": str(folder),
        "began": iso(results["plan"]["began_ms"]) if "plan" in results else None,
        "outcome": end.get("outcome", UNDER_WAY),
        "because": end.get("because", ""),
        "run": rows.get("run"),
        "version": rows.get("version"),
        "digest": results.get("push", {}).get("digest"),
        "steps": [{"step": step, "seconds": entry.seconds} for step, entry in entries.items()],
        "snapshot": _snapshot(journal, results),
        "rows": {name: value for name, value in rows.items() if name not in ("run", "version")} or None,
        "search": results.get("search"),
        "export": results.get("export"),
        "comparison": results.get("gate"),
        "promotion": results.get("promote"),
        "pictures": sorted(str(path) for path in folder.glob("pictures/*.svg")),
    }


def _snapshot(journal: Journal, results: Mapping[str, Any]) -> dict[str, Any] | None:
    frozen = journal.result("freeze", Frozen)
    copied = results.get("copy")
    return {"frozen": iso(frozen.now_ms), "cluster": frozen.cluster_id, **(copied or {})} if frozen else None


def shown(document: Mapping[str, Any]) -> Group:
    """Render the document of a run as tables. Steps that are not complete are omitted."""
    return Group(*_parts(document))


def _parts(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    head = Table.grid(padding=(0, 2))
    for name in ("run", "version", "digest", "began", "folder", "outcome", "because"):
        if document[name]:
            head.add_row(name, str(document[name]))
    yield head
    if document["rows"]:
        yield from _rows(document["rows"], document["snapshot"])
    if document["search"]:
        yield from _search(document["search"])
    if document["comparison"]:
        yield from _comparison(document["comparison"])
    seconds_by_step = [(step["step"], f"{step['seconds']:.1f}") for step in document["steps"]]
    yield table(("step", "seconds"), seconds_by_step)
    yield from document["pictures"]


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
            iso(part["from_ms"]),
            iso(part["to_ms"]),
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
        (rung["budget"], len(rung["trials"]), f"{better(trial['score'] for trial in rung['trials']):.4f}", len(rung["kept"]))
        for rung in results["rungs"]
    ]
    yield table(("trained to", "trials", f"best {results['metric']}", "go on"), rungs)
    parameters = ", ".join(f"{name} {value}" for name, value in results["best"]["parameters"].items())
    yield Text(f"best: trial {results['best']['trial']} at {results['best']['budget']}: {parameters}")
    for failure in results.get("failures", ()):
        yield Text(f"trial {failure['trial']} failed at {failure['budget']}: {failure['reason']}")
        yield Text("\n".join(f"    {line}" for line in failure["log"].splitlines()))


def comparison(results: Mapping[str, Any]) -> Group:
    """Render the comparison of two versions: their metrics side by side, and each rule with its value and bound."""
    return Group(*_comparison(results))


def _comparison(results: Mapping[str, Any]) -> Iterator[RenderableType]:
    sides = [(name, side) for name in ("champion", "challenger") if (side := results[name])]
    metrics = sides[-1][1]["metrics"]
    yield table(
        ("", *(f"{name} {side['version']}" for name, side in sides)),
        [(metric, *(_figure(side["metrics"].get(metric)) for _, side in sides)) for metric in metrics],
    )
    rules = [
        (rule["name"], _figure(rule["value"]), _figure(rule["bound"]), "yes" if rule["passed"] else "NO")
        for rule in results["rules"]
    ]
    yield table(("rule", "value", "bound", "passed"), rules)
    yield f"{results['verdict']}: {results['because']}"


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
