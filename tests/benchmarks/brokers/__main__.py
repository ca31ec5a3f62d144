"""`python -m tests brokers`: the demo on each listed version of Apache Kafka, on a real broker.

Each run swaps a model version and kills a scorer (kill -9) while events flow, then audits the scores. The exit code is 1 if a
run was not clean. The jars come from Maven, checked against `kafka-VERSION.txt`.
"""

import argparse
import contextlib
import dataclasses
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from publisher.errors import Fatal
from scorer.demo.broker.embedded import EmbeddedBroker
from scorer.demo.broker.jars import jar_list
from scorer.demo.broker.kraft_config import HOST
from scorer.demo.options import DemoOptions
from scorer.demo.run import Demo
from scorer.demo.sandbox import open_sandbox
from scorer.demo.summary import DemoSummary
from scorer.demo.view import DemoView

FOLDER = Path(__file__).parent
LISTS = {path.stem.removeprefix("kafka-"): path for path in sorted(FOLDER.glob("kafka-*.txt"))}
EMBEDDED = next(jar.version for jar in jar_list() if jar.artifact == "kafka_2.13")
VERSIONS = (*LISTS, EMBEDDED)
COUNTS = ("events", "missing", "duplicates")
PAUSES = {"swap": "swap_pause_ms", "kill -9": "kill_pause_ms"}


def broker(version: str) -> EmbeddedBroker:
    """Return a broker of this version. Its only voter is configured by address, which all versions support."""
    if version == EMBEDDED:
        return EmbeddedBroker()
    voters = "controller.quorum.voters"
    return EmbeddedBroker(properties=lambda ports: {voters: f"1@{HOST}:{ports[1]}"}, jars=jar_list(LISTS[version].read_text()))


def play(version: str, options: DemoOptions, logs: Path | None) -> DemoSummary | str:
    """Run the demo on a broker of this version; return its summary, or the error. `logs`: a folder for the logs."""
    with DemoView() as view, contextlib.ExitStack() as cleanup:
        view.step(f"Apache Kafka {version}")
        try:
            running = cleanup.enter_context(broker(version))
            broker_options = dataclasses.replace(options, bootstrap_servers=running.bootstrap_servers)
            sandbox = cleanup.enter_context(open_sandbox(broker_options, view))
            if logs is not None:
                cleanup.callback(keep, [sandbox.folder, running.folder], logs / version)
            return Demo(broker_options, view, sandbox).run()
        except Fatal as error:
            return str(error)


def keep(folders: Sequence[Path], target: Path) -> None:
    target.mkdir(parents=True)
    for log in (log for folder in folders for log in folder.glob("*.log")):
        shutil.copy(log, target)


def row(outcome: DemoSummary | str) -> list[str]:
    """Return the counts, the pauses in seconds, and the verdict."""
    if isinstance(outcome, str):
        return ["-"] * (len(COUNTS) + len(PAUSES)) + [outcome.partition("\n")[0]]
    figures = outcome.to_dict()
    pauses = [f"{figures[name] / 1_000:.1f} s" if figures[name] else "-" for name in PAUSES.values()]
    return [*(f"{figures[name]:,}" for name in COUNTS), *pauses, "clean" if outcome.clean else "NOT CLEAN"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests brokers", description=__doc__)
    parser.add_argument("--only", action="append", choices=VERSIONS, help="this version; repeatable (default: all)")
    parser.add_argument("--events", type=int, default=20_000, help="flights in a run, at least")
    parser.add_argument("--rate", type=float, default=1_000.0, help="flights a second")
    parser.add_argument("--logs", type=Path, help="keep the logs of scorers and brokers in this folder")
    arguments = parser.parse_args()
    options = DemoOptions(events=arguments.events, rate=arguments.rate)
    table, clean = Table("Apache Kafka", *COUNTS, *(f"longest pause at the {name}" for name in PAUSES), ""), True
    for version in arguments.only or VERSIONS:
        outcome = play(version, options, arguments.logs)
        table.add_row(version, *row(outcome))
        clean = clean and isinstance(outcome, DemoSummary) and outcome.clean
    Console().print(table)
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
