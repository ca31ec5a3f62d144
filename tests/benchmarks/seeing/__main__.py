"""`python -m tests seeing`: alerts, dashboards and runbooks against a real Prometheus, live scorers and a live relay. Minutes;
needs Debian's prometheus.

It runs two real brokers, scorers under load and a relay. Every fault that triggers an alert is caused: the alert fires, and
clears after the fault is healed. Then each query of the dashboards must have an answer, and each command of the runbooks must
run.
"""

import argparse
import json
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from scorer.demo.broker.embedded import EmbeddedBroker
from tests.benchmarks.findings import Finding, report_findings
from tests.benchmarks.seeing import rules, runbooks
from tests.benchmarks.seeing.faults import FAULTS
from tests.benchmarks.seeing.fleet import Fleet
from tests.benchmarks.seeing.prometheus import STEP_SECONDS, Prometheus
from tests.packaging.deploy.dashboards import asked
from tests.support.waiting import until

WITHOUT_SERIES = ("Certificates",)  # the clusters of this run have no TLS
WITHOUT_RECORDS = ("scorer_unreadable_records_total",)  # has a series only after the first such record; this run writes none
LOOK_BACK = "15m"  # rates of the dashboards are taken over all of the run


def main() -> int:
    """Return exit code 0 if every claim holds, 1 if one does not, 2 if Prometheus is not installed."""
    parser = argparse.ArgumentParser(prog="python -m tests seeing", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=list(FAULTS), help="only this fault (and the first); may be repeated"
    )
    options = parser.parse_args()
    if shutil.which("prometheus") is None:
        print("missing: apt-get install -y --no-install-recommends prometheus", file=sys.stderr)
        return 2
    faults = [name for name in FAULTS if not options.only or name in options.only or name == next(iter(FAULTS))]
    with tempfile.TemporaryDirectory() as name:
        return report_findings(run(Path(name), faults, complete=not options.only))


def run(folder: Path, faults: list[str], *, complete: bool) -> Iterator[Finding]:
    """Yield the findings as they arrive; those of dashboards and runbooks only if `complete`."""
    with (
        EmbeddedBroker() as broker,
        EmbeddedBroker() as remote_broker,
        Prometheus(folder / "prometheus", rules.fast()) as prometheus,
    ):
        fleet = Fleet(broker, remote_broker, folder / "fleet", prometheus)
        try:
            fleet.load.start()
            for fault in faults:
                yield from alert_findings(fault, fleet)
            if complete:
                yield from dashboard_findings(prometheus)
                yield from runbook_findings(fleet, folder / "reader")
                fleet.rig.alter(fleet.rig.scores_topic, "retention.ms", "-1")  # the audit reads all scores
            fleet.load.finish()
            if complete:
                yield audit_finding(fleet)
        finally:
            fleet.close()


def alert_findings(fault: str, fleet: Fleet) -> Iterator[Finding]:
    """Cause one fault and wait for its alerts. A missing alert is a finding and does not end the run."""
    brought_about, alerts = FAULTS[fault]
    began = time.monotonic()
    fired = []
    try:
        with brought_about(fleet):
            for alert in alerts:
                fleet.prometheus.fires(alert)
                fired.append(f"{alert} after {time.monotonic() - began:.0f} s")
        fleet.prometheus.clears(*alerts)
    except AssertionError as error:
        observed = f"{error}; fired: {fired}; firing: {sorted(fleet.prometheus.firing())}"
        yield Finding(f"{fault}: fires and clears", observed, False)
    else:
        yield Finding(f"{fault}: fires and clears", f"{', '.join(fired)}; clear after {time.monotonic() - began:.0f} s", True)


def dashboard_findings(prometheus: Prometheus) -> Iterator[Finding]:
    """Run the queries of the panels. Queries of WITHOUT_SERIES and WITHOUT_RECORDS must only be valid."""
    for query in asked(LOOK_BACK):
        if query.panel in WITHOUT_SERIES or any(metric in query.expression for metric in WITHOUT_RECORDS):
            yield Finding(f"{query.dashboard}, {query.panel}", f"{figures(prometheus, query.expression)} series", True)
            continue
        try:
            until(partial(figures, prometheus, query.expression), query.expression, STEP_SECONDS)
        except AssertionError as error:
            yield Finding(f"{query.dashboard}, {query.panel}", f"no answer: {error}", False)
        else:
            yield Finding(f"{query.dashboard}, {query.panel}", f"{figures(prometheus, query.expression)} series", True)


def figures(prometheus: Prometheus, expression: str) -> int:
    """Return the number of series of an expression that have a number; a late scrape on a busy machine gives NaN."""
    return sum(not math.isnan(value) for _, value in prometheus.ask(expression))


def runbook_findings(fleet: Fleet, folder: Path) -> Iterator[Finding]:
    reader = runbooks.Reader(fleet, folder)
    for page in runbooks.pages():
        wrong = [problem for line in runbooks.lines(page) if (problem := reader.run(line)) is not None]
        yield Finding(f"runbook {page}", "\n".join(wrong) or "its commands run", not wrong)


def audit_finding(fleet: Fleet) -> Finding:
    """Check that after all faults every event has one answer, in order. Versions changed in both directions, by promotion."""
    counts = fleet.rig.audit()
    deadline = time.monotonic() + STEP_SECONDS
    while counts["missing"] and time.monotonic() < deadline:  # the last events may still be in flight
        counts = fleet.rig.audit()
    totals = {name: counts[name] for name in ("inputs", "missing", "duplicates", "phantoms", "out_of_order")}
    return Finding("the audit", json.dumps(totals), counts["inputs"] > 0 and sum(totals.values()) == totals["inputs"])


if __name__ == "__main__":
    sys.exit(main())
