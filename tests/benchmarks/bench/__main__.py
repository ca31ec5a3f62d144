"""How fast this is, by parts and as a whole, on this machine: a table on stderr, every figure as JSON in a file or on stdout.

    python -m tests bench --out figures.json            # everything: about half an hour
    python -m tests bench --quick --only components     # small, to see that it works; --only may be repeated
    python -m tests bench --plot figures.json plot.svg   # draws them beside other programs; measures nothing
    python -m tests.benchmarks.bench.regression                    # CPU time by a yardstick, against the committed baseline

Starts a real broker, load and readers on all cores but the last, which is the scorer's alone. Exit code 1 where an event is
missing or was answered twice, 2 where there is only one core.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from publisher.kafka.headers import Headers
from tests.benchmarks.bench import counting, joined, kafka_client, pictures, plot, report, verbs, whole
from tests.benchmarks.bench.contents import FORMATS, contents
from tests.benchmarks.bench.counting import Figures, spread
from tests.benchmarks.bench.machine import Cores, description
from tests.benchmarks.bench.stage import Stage
from tests.benchmarks.bench.streams import peer
from tests.benchmarks.bench.workload import HELD_OUT, Workload, headers

DELIVERIES = ("exactly-once", "at-least-once")
GROUPS = (
    "components",
    "bus",
    "drain",
    "features",
    "tables",
    "tables_paced",
    "tables_streams",
    "formats",
    "headers",
    "held_out",
    "pictures",
    "workers",
    "split",
    "paced",
    "swap",
    "shadow",
    "start",
    "compare",
    "lineage",
)
ON_REQUEST = ("tables_streams",)
"""Groups that are measured only if `--only` names them: they need more than the product's environment."""
CANARY = "5%"
QUESTIONS = 9  # to `scorer lineage`
WIDTH = 160  # of tables that go into a file


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything."""

    events: int = 600_000
    workers: tuple[int, ...] = (2, 4)
    rates: tuple[float, ...] = (100.0, 1_000.0, 5_000.0, 10_000.0, 20_000.0)
    seconds: float = 10.0
    swap_seconds: float = 15.0
    swap_rate: float = 20_000.0  # at most: half of what drain came to, where that is less
    repetitions: int = 3
    in_turn: int = 5
    pictures: int = 6_000
    compared: int = 1_000_000
    traced: int = 10_000_000
    shadow_rates: tuple[float, ...] = (1_000.0, 5_000.0)
    shadow_share: int = 20
    rounds: int = 9
    batches: str = "1,8,64,512,4096"
    features: str = "4,30,300,3000"
    table_rows: int = 1_000_000
    joined_rates: tuple[float, ...] = (10_000.0,)
    joined_turns: int = 9


QUICK = Sizes(
    4_000, (2,), (200.0,), 1.0, 3.0, 300.0, 1, 1, 100, 2_000, 4_000, (200.0,), 100, 2, "1,64", "4,30", 2_000, (200.0,), 1
)


class Bench:
    """One run: what was asked for, and what was found so far."""

    def __init__(self, stage: Stage, sizes: Sizes, groups: list[str], deliveries: list[str], talk: Console) -> None:
        self._stage = stage
        self._deliveries = deliveries
        self._sizes = sizes
        self._talk = talk
        self._groups = groups
        self._source = f"bench.events.{sizes.events}"
        self.found: dict[str, Any] = {"machine": description(), "groups": groups}

    def run(self) -> dict[str, Any]:
        if {"bus", "drain", "features", "workers", "split", "start"} & set(self._groups):
            self._tell("filling the input topic")
            self._stage.fill(self._source, self._stage.workload.events(self._sizes.events))
        for group in self._groups:
            self._tell(group)
            self.found[group] = getattr(self, f"_{group}")()
        return self.found

    def _tell(self, what: str) -> None:
        self._talk.print(f"{time.strftime('%H:%M:%S')} {what}", markup=False)

    def _repeated(self, measure: Callable[[], Figures]) -> Figures:
        return spread([measure() for _ in range(self._sizes.repetitions)])

    def _components(self) -> Any:
        sizes = self._sizes
        options = ["--batches", sizes.batches, "--features", sizes.features, "--rounds", str(sizes.rounds)]
        command = self._stage.cores.pinned(sys.executable, "-m", "tests.benchmarks.bench.components", *options)
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)

    def _bus(self) -> Any:
        return [whole.bus(self._stage, self._source, self._sizes.events) for _ in range(self._sizes.repetitions)]

    def _drain(self) -> Any:
        events = self._sizes.events
        return [self._repeated(lambda d=d: whole.drain(self._stage, d, self._source, events)) for d in self._deliveries]  # type: ignore[misc]

    def _features(self) -> Any:
        """Measure the drain without a feature log, with one of each event, and with one of 1 % of the keys, in turn.

        `added_cpu_us` is how much the CPU time per event is above that of the run without a log in the same round. Every second
        round has the reverse order.
        """
        variants: dict[str, dict[str, Any] | None] = {
            "none": None,
            "json": {"format": "json"},
            "avro": {"format": "avro"},
            "1 % json": {"format": "json", "sample": 0.01},
        }
        runs: dict[str, list[Figures]] = {name: [] for name in variants}
        for turn in range(self._sizes.in_turn):
            for name in list(variants)[:: 1 if turn % 2 == 0 else -1]:
                drained = whole.drain(self._stage, DELIVERIES[0], self._source, self._sizes.events, features=variants[name])
                runs[name].append(drained)
        unlogged = runs["none"]
        return [
            {"feature_log": name, "added_cpu_us": counting.above(own, unlogged, "cpu_us_per_event"), **spread(own)}
            for name, own in runs.items()
        ]

    def _tables(self) -> Any:
        """Measure the drain of 30 numbers, and of 25 numbers with five from a table, in turn.

        `unjoined_cpu_share` is the CPU time per event without a table as a share of that with it; `times_events_per_s` the
        throughput as a multiple of that without a table.
        """
        rows = self._sizes.table_rows
        count = self._sizes.events // 2
        runs: dict[str, list[Figures]] = {name: [] for name in joined.VARIANTS}
        with Stage(self._stage.cores, Workload(), joined.package) as stage:
            row_bytes = self._fill_tables(stage, count)
            for _ in range(self._sizes.repetitions):
                for name, settings in joined.VARIANTS.items():
                    topic = "bench.unjoined" if settings is None else "bench.joined"
                    tables = self._table(stage, settings)
                    runs[name].append(whole.drain(stage, DELIVERIES[0], topic, count, tables=tables, table_rows=rows))
        unjoined = runs["none"]
        measured: list[Figures] = [{"table": "none", **spread(unjoined)}]
        for name, own in list(runs.items())[1:]:
            compared = {
                "unjoined_cpu_share": counting.beside(unjoined, own, "cpu_us_per_event"),
                "times_events_per_s": counting.beside(own, unjoined, "events_per_s"),
            }
            measured.append({"table": name, **compared, "row_bytes": round(row_bytes, 1), **spread(own)})
        return measured

    def _tables_paced(self) -> Any:
        """Measure latency without a table, and with five numbers joined by the key of the record, in turn.

        The two change their order from round to round. `p99_above_ms` is how much the p99 of a run with the table is above that
        of the run without it in the same round. Broker, load and readers use all cores, also the scorer's. On two cores, a core
        of their own is not enough at 10,000 events per second: the p99 would be that of a busy broker.
        """
        cores = replace(self._stage.cores, others=self._stage.cores.others | {self._stage.cores.scorer})
        rates = list(self._sizes.joined_rates)
        names = list(joined.VARIANTS)[:2]
        runs: dict[tuple[str, float], list[Figures]] = {(name, rate): [] for rate in [*rates, 0.0] for name in names}
        with Stage(cores, Workload(), joined.package) as stage:
            self._fill_tables(stage, 0)
            events = joined.JoinedEvents(self._sizes.table_rows)
            for turn in range(self._sizes.joined_turns):
                self._tell(f"round {turn + 1} of {self._sizes.joined_turns}")
                for name in names if turn % 2 == 0 else names[::-1]:
                    settings = joined.VARIANTS[name]
                    tables = self._table(stage, settings)
                    own = None if settings is None else events
                    for row in whole.paced(stage, DELIVERIES[0], rates, self._sizes.seconds, own, tables):
                        runs[name, row["rate"]].append(row)
        measured: list[Figures] = []
        for (name, rate), own_runs in runs.items():
            above = {}
            if rate and name != names[0]:
                above = {"p99_above_ms": counting.above(own_runs, runs[names[0], rate], "p99_ms")}
            measured.append({"table": name, **above, **spread(own_runs)})
        return measured

    def _tables_streams(self) -> Any:
        """Measure the drain without a table, with five numbers from a table, and that of Kafka Streams, in turn.

        The table is joined by the key of the record: by the scorer with both scopes, by Kafka Streams as a GlobalKTable. All
        are exactly once. `times_streams_events_per_s` is the throughput as a multiple of that of Kafka Streams,
        `streams_cpu_times` the CPU time of Kafka Streams per event as a multiple of the scorer's.
        """
        rows = self._sizes.table_rows
        count = self._sizes.events
        names = [name for name in joined.VARIANTS if not name.endswith("path")]
        runs: dict[str, list[Figures]] = {name: [] for name in names}
        streams: list[Figures] = []
        with Stage(self._stage.cores, Workload(), joined.package) as stage:
            java = peer.compile_peer(stage.folder / "streams")
            self._fill_tables(stage, count)
            expected = peer.expected_scores(stage, rows)
            for _ in range(self._sizes.repetitions):
                for name in names:
                    settings = joined.VARIANTS[name]
                    topic = "bench.unjoined" if settings is None else "bench.joined"
                    tables = self._table(stage, settings)
                    runs[name].append(whole.drain(stage, DELIVERIES[0], topic, count, tables=tables, table_rows=rows))
                streams.append(peer.drain(stage, java, "bench.joined", count, expected))
        measured: list[Figures] = []
        for name, own in runs.items():
            compared = {
                "times_streams_events_per_s": counting.beside(own, streams, "events_per_s"),
                "streams_cpu_times": counting.beside(streams, own, "cpu_us_per_event"),
            }
            measured.append({"system": "scorer", "table": name, **compared, **spread(own)})
        return [*measured, {"system": "Kafka Streams", "table": "GlobalKTable", **spread(streams)}]

    def _fill_tables(self, stage: Stage, events: int) -> float:
        """Write the table, and topics of events without and with it; return the mean size of a row and its key in bytes."""
        self._tell("filling the table")
        row_bytes = joined.fill_table(stage, self._sizes.table_rows)
        if events:
            own = joined.JoinedEvents(self._sizes.table_rows)
            stage.fill("bench.unjoined", stage.workload.events(events), keys=own.key)
            stage.fill("bench.joined", own.values(events), keys=own.key)
        return row_bytes

    def _table(self, stage: Stage, settings: Mapping[str, str] | None) -> dict[str, Any] | None:
        """Promote the version for these settings of the table; return the tables of the configuration."""
        stage.promote(joined.UNJOINED_VERSION if settings is None else joined.JOINED_VERSION)
        return None if settings is None else {joined.NAME: {"topic": joined.TOPIC, **settings}}

    def _formats(self) -> Any:
        """The same content in each input format, beside the limit of the bus: the CPU time of consume and produce alone."""
        rows: list[Figures] = []
        for format_ in FORMATS:
            written, topic = contents(self._stage.workload, format_, self._stage.folder), f"bench.{format_}"
            row = {
                "format": format_,
                **self._beside_bus(self._stage, topic, list(written.events(self._sizes.compared)), written.input),
            }
            json_row = rows[0] if rows else row
            row["times_json"] = round(json_row["cpu_us_per_event"]["median"] / row["cpu_us_per_event"]["median"], 2)
            rows.append(row)
        return rows

    def _headers(self) -> Any:
        """The same with an id, a deadline and a trace in the headers of each event: what headers cost."""
        events = list(self._stage.workload.events(self._sizes.events // 2))
        named = ", ".join(name for name, _ in headers(0))
        return [{"headers": named, **self._beside_bus(self._stage, "bench.headers", events, {"id": "id"}, headers)}]

    def _held_out(self) -> Any:
        """A workload that nothing was chosen by, on a stage of its own."""
        with Stage(self._stage.cores, HELD_OUT) as stage:
            events = list(HELD_OUT.events(self._sizes.events // 2))
            return [{"features": HELD_OUT.features, **self._beside_bus(stage, "bench.held-out", events, {"id": "id"})}]

    def _pictures(self) -> Any:
        """Values of 150,528 bytes as tensors, beside the bus, in transactions as large as theirs, and one copy of each."""
        with Stage(self._stage.cores, self._stage.workload, pictures.package) as stage:
            events = list(pictures.events(self._sizes.pictures))
            return [
                self._beside_bus(stage, "bench.pictures", events, pictures.INPUT, headers, pictures.BATCH, pictures.copy_us())
            ]

    def _beside_bus(
        self,
        stage: Stage,
        topic: str,
        events: list[bytes],
        settings: Mapping[str, Any],
        more: Callable[[int], Headers] = lambda _: None,
        batch: int = kafka_client.BATCH,
        copied_us: float = 0.0,
    ) -> Figures:
        stage.fill(topic, events, more)
        alone = whole.bus(stage, topic, len(events), settings, batch)
        limit = alone["consume"]["process_us"] + alone["produce"]["process_us"] + copied_us
        rate = 1 / (1 / alone["consume"]["events_per_s"] + 1 / alone["produce"]["events_per_s"] + copied_us / 1e6)
        found = self._repeated(lambda: whole.drain(stage, DELIVERIES[0], topic, len(events), settings=settings))
        share = round(limit / found["cpu_us_per_event"]["median"], 2)
        return {
            "bytes": round(sum(map(len, events)) / len(events)),
            "bus_us": round(limit, 2),
            "bus_share": share,
            "bus_events_per_s": round(rate),
            **found,
        }

    def _workers(self) -> Any:
        """Several workers on the one core: what each event costs, and what memory they share."""
        return [whole.drain(self._stage, self._deliveries[0], self._source, self._sizes.events, n) for n in self._sizes.workers]

    def _split(self) -> Any:
        """The drain without a canary, and with one of the same model, in turn; and what the scoring thread spends more."""
        self._stage.push("1.0.1", seed=0)
        alone: list[Figures] = []
        split: list[Figures] = []
        for _ in range(self._sizes.in_turn):
            for share, runs in (("", alone), (CANARY, split)):
                self._stage.promote("1.0.0")
                if share:
                    self._stage.promote("1.0.1", share)
                runs.append(whole.drain(self._stage, self._deliveries[0], self._source, self._sizes.events))
        self._stage.promote("1.0.0")
        compared = ("cpu_us_per_event", "events_per_s")
        times = {f"times_{name}": counting.beside(split, alone, name) for name in compared}
        thread = self._stage.cores.pinned(sys.executable, "-m", "tests.benchmarks.bench.splitting")
        scored = json.loads(subprocess.run(thread, check=True, stdout=subprocess.PIPE).stdout)
        without = spread(alone)
        share = round(scored["more_us"] / without["cpu_us_per_event"]["median"], 3)
        return [{"canary": "", **without}, {"canary": CANARY, **spread(split), **times, **scored, "more_share": share}]

    def _paced(self) -> Any:
        rates, seconds = list(self._sizes.rates), self._sizes.seconds
        return [row for delivery in self._deliveries for row in whole.paced(self._stage, delivery, rates, seconds)]

    def _swap(self) -> Any:
        drained = self.found.get("drain")
        rate = self._sizes.swap_rate
        rates = [min(rate, row["events_per_s"]["median"] / 2) for row in drained] if drained else [rate] * len(self._deliveries)
        return [
            whole.swap(self._stage, delivery, rate, self._sizes.swap_seconds)
            for delivery, rate in zip(self._deliveries, rates, strict=True)
            for _ in range(self._sizes.repetitions)
        ]

    def _shadow(self) -> Any:
        """What a shadow on the scorer's core costs those who wait for scores."""
        sizes = self._sizes
        return [
            self._repeated(lambda rate=rate: whole.shadowed(self._stage, rate, sizes.seconds, sizes.shadow_share))  # type: ignore[misc]
            for rate in sizes.shadow_rates
        ]

    def _start(self) -> Any:
        return [self._repeated(lambda d=d: whole.start(self._stage, d, self._source)) for d in self._deliveries]  # type: ignore[misc]

    def _compare(self) -> Any:
        """`scorer compare` of two versions on events that are kept, on the scorer's core."""
        count = self._sizes.compared
        self._stage.fill("bench.compared", self._stage.workload.events(count))
        return [self._repeated(lambda: verbs.compared(self._stage, "bench.compared", count))]

    def _lineage(self) -> Any:
        """`scorer lineage` of events by their positions among many that are scored."""
        count = self._sizes.traced
        self._stage.fill("bench.traced", self._stage.workload.events(count))
        return [spread(verbs.traced(self._stage, "bench.traced", count, QUESTIONS))]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests bench")
    parser.add_argument("--out", type=Path, help="the figures as JSON (default: stdout)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: it runs, its figures say nothing")
    parser.add_argument("--only", action="append", choices=GROUPS, help="only these measurements")
    parser.add_argument("--delivery", action="append", choices=DELIVERIES, help="only in this delivery mode")
    parser.add_argument("--plot", type=Path, nargs=2, metavar=("FILE", "SVG"), help="only draw the figures of a run")
    options = parser.parse_args()
    if options.plot:
        plot.write(*options.plot)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: what was started is stopped
    talk = Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else WIDTH)
    try:
        cores = Cores.split(os.sched_getaffinity(0))
    except ValueError as error:
        talk.print(f"error: {error}")
        return 2
    groups = [group for group in GROUPS if (group in options.only if options.only else group not in ON_REQUEST)]
    if "tables_streams" in groups and shutil.which("javac") is None:
        talk.print(f"error: {peer.JDK_MISSING}")
        return 2
    with Stage(cores, Workload()) as stage:
        found = Bench(stage, QUICK if options.quick else Sizes(), groups, options.delivery or list(DELIVERIES), talk).run()
    text = json.dumps(found, indent=1)
    if options.out:
        options.out.write_text(text + "\n")
    else:
        print(text)
    for table in report.tables(found):
        talk.print(table)
    return int(report.faults(found) > 0)


if __name__ == "__main__":
    sys.exit(main())
