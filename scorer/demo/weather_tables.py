"""The demo of tables: a version that joins each flight with the weather of its airport replaces a version without weather.

The flights are replayed twice, so that both versions score the same flights.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from rich.table import Table

from publisher.errors import Fatal
from publisher.kafka import clients
from scorer.demo import flights, weather
from scorer.demo.options import DemoOptions
from scorer.demo.run import NEW, Demo
from scorer.demo.sandbox import follow_up_commands, open_sandbox
from scorer.demo.summary import DemoSummary, VersionResult, quality
from scorer.demo.view import DemoView
from scorer.observability.read_output_topics import read_to_end

WITH_WEATHER = "3.0.0"
FLUSH_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class TablesSummary:
    """The summary of the scores, and the result of each version over the flights that both versions scored."""

    summary: DemoSummary
    same_flights: dict[str, VersionResult]

    @property
    def clean(self) -> bool:
        """Whether the audit of the scores found no fault, and both versions scored some of the same flights."""
        return self.summary.clean and len(self.same_flights) > 1

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as a dict of JSON values."""
        same = {version: {"events": result.events, "auc": result.auc} for version, result in self.same_flights.items()}
        return {**self.summary.to_dict(), "clean": self.clean, "same_flights": same}

    def table(self) -> Table:
        """Return the summary as a table."""
        table = self.summary.table()
        for version, result in self.same_flights.items():
            weather_used = "with" if version == WITH_WEATHER else "without"
            table.add_row(
                f"{version}, {weather_used} the weather", f"AUC {result.auc:.4f} over the same {result.events:,} flights"
            )
        return table


def demo(options: DemoOptions, view: DemoView) -> TablesSummary:
    """Run the demo. Raises Fatal if a step fails. Processes and files are always removed unless `options.keep` is True."""
    row = f"scorer tables get scorer.yaml {weather.TABLE} EWR/2013-09-12T18"
    with open_sandbox(options, view, follow_up_commands(options, "scorer tables scorer.yaml", row)) as sandbox:
        demo = _TablesDemo(options, view, sandbox)
        return TablesSummary(demo.run(), demo.same_flights())


class _TablesDemo(Demo):
    """A demo in which the new version joins each flight with the weather report that the flight names."""

    old = NEW
    new = WITH_WEATHER
    reason = "the same trees with the weather at departure"

    def package(self, version: str) -> Path:
        folder = flights.DATA / flights.TABLES if version == WITH_WEATHER else flights.DATA
        return folder / f"flight-delay-{version}"

    def lines(self) -> Iterator[bytes]:
        return weather.lines_with_reports(self.options.events // 2)

    def fill_topics(self) -> None:
        """Write the weather reports to the topic of the table. In a company, Flink or a warehouse writes this topic."""
        topic = self.settings.tables[weather.TABLE].topic
        producer = clients.plain_producer(self.settings.kafka, f"{self.settings.name}.demo")
        reports = list(weather.reports())
        for key, row in reports:
            producer.produce(topic, orjson.dumps(row), key)
        if producer.flush(FLUSH_SECONDS):
            raise Fatal(f"the weather reports were not written to {topic} within {FLUSH_SECONDS:.0f} s")
        self.view.print_result(
            f"the table {weather.TABLE} has {len(reports):,} hourly reports of three airports in the topic {topic}"
        )

    def same_flights(self) -> dict[str, VersionResult]:
        """Return the result of each version over the flights with a known outcome that both versions scored."""
        outcomes = flights.outcomes()
        scores: dict[str, dict[str, float]] = {}
        for message in read_to_end(self.settings, self.settings.output.topic):
            record = orjson.loads(message.value() or b"{}")
            scores.setdefault(record["version"], {})[flights.original_id(record["id"])] = record["score"]
        if len(scores) < 2:
            return {}
        common = sorted(set.intersection(*(set(of_version) for of_version in scores.values()), set(outcomes)))
        return {
            version: VersionResult(len(common), quality([(of_version[flight], outcomes[flight]) for flight in common]))
            for version, of_version in sorted(scores.items())
        }
