"""`python -m tests brokers`: the demo on each version of Apache Kafka that is listed here, on a real broker.

Events flow, a version is swapped, a scorer is killed (kill -9), and the audit counts. The exit code is 1 where a run was not
clean. The jars come from Maven, checked against `kafka-VERSION.txt`.
"""

import argparse
import contextlib
import dataclasses
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

from publisher.errors import Fatal
from scorer.demo.broker.embedded import EmbeddedBroker
from scorer.demo.broker.jars import jar_list
from scorer.demo.broker.node import HOST
from scorer.demo.options import Options
from scorer.demo.run import Demo
from scorer.demo.stage import stage
from scorer.demo.summary import Summary
from scorer.demo.view import View

FOLDER = Path(__file__).parent
LISTS = {path.stem.removeprefix("kafka-"): path for path in sorted(FOLDER.glob("kafka-*.txt"))}
EMBEDDED = next(jar.version for jar in jar_list() if jar.artifact == "kafka_2.13")
VERSIONS = (*LISTS, EMBEDDED)
COUNTS = ("events", "missing", "duplicates")
PAUSES = {"swap": "swap_pause_ms", "kill -9": "kill_pause_ms"}


@dataclasses.dataclass(frozen=True)
class Run:
    """One run on one version. `failed` is why it did not come to its end, if it did not."""

    version: str
    summary: Summary | None
    failed: str = ""

    @property
    def clean(self) -> bool:
        """Whether the audit found nothing."""
        return self.summary is not None and self.summary.clean

    def to_dict(self) -> dict[str, Any]:
        found = self.summary.to_dict() if self.summary else {}
        return {"version": self.version, "clean": self.clean, "failed": self.failed, **found}


def broker(version: str) -> EmbeddedBroker:
    """A broker of this version. Its one voter is told by address, as all versions understand."""
    if version == EMBEDDED:
        return EmbeddedBroker()
    voters = "controller.quorum.voters"
    return EmbeddedBroker(properties=lambda ports: {voters: f"1@{HOST}:{ports[1]}"}, jars=jar_list(LISTS[version].read_text()))


def play(version: str, options: Options, logs: Path | None) -> Run:
    """The demo on a broker of this version. What scorers and broker say goes to the folder `logs`, where one is given."""
    with View() as view, contextlib.ExitStack() as cleanup:
        view.step(f"Apache Kafka {version}")
        try:
            running = cleanup.enter_context(broker(version))
            own = dataclasses.replace(options, bootstrap_servers=running.bootstrap_servers)
            where = cleanup.enter_context(stage(own, view))
            if logs is not None:
                cleanup.callback(keep, [where.folder, running.folder], logs)
            return Run(version, Demo(own, view, where).play())
        except Fatal as error:
            return Run(version, None, str(error))


def keep(folders: Sequence[Path], target: Path) -> None:
    target.mkdir(parents=True)
    for log in (log for folder in folders for log in folder.glob("*.log")):
        shutil.copy(log, target)


def table(runs: Sequence[Run]) -> Table:
    """A line a run; pauses in seconds."""
    shown = Table("Apache Kafka", *COUNTS, *(f"longest pause at the {name}" for name in PAUSES), "")
    for run in runs:
        found = run.summary.to_dict() if run.summary else {}
        counts = [f"{found[name]:,}" if found else "-" for name in COUNTS]
        pauses = [f"{found[name] / 1_000:.1f} s" if found.get(name) else "-" for name in PAUSES.values()]
        shown.add_row(run.version, *counts, *pauses, "clean" if run.clean else run.failed.partition("\n")[0] or "NOT CLEAN")
    return shown


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests brokers", description=__doc__)
    parser.add_argument("--only", action="append", choices=VERSIONS, help="this version; repeatable (default: all)")
    parser.add_argument("--times", type=int, default=1, help="runs on each version")
    parser.add_argument("--events", type=int, default=20_000, help="flights in a run, at least")
    parser.add_argument("--rate", type=float, default=1_000.0, help="flights a second")
    parser.add_argument("--logs", type=Path, help="keep what scorers and brokers say in this folder")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    return parser.parse_args()


def all_runs(wanted: argparse.Namespace) -> Iterator[Run]:
    """Version by version, so that what a machine does meanwhile meets all alike."""
    options = Options(events=wanted.events, rate=wanted.rate)
    for number in range(wanted.times):
        for version in wanted.only or VERSIONS:
            yield play(version, options, wanted.logs and wanted.logs / f"{version}-{number + 1}")


def main() -> int:
    wanted = arguments()
    runs = list(all_runs(wanted))
    if wanted.json:
        sys.stdout.buffer.write(orjson.dumps({"runs": [run.to_dict() for run in runs]}, option=orjson.OPT_INDENT_2) + b"\n")
    else:
        Console().print(table(runs))
    return 0 if all(run.clean for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
