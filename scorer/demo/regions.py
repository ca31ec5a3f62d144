"""The demo with two regions: flights are scored in one region, and a publisher copies the scores to the other.

The publisher is killed and restarted. At the end both regions are audited.
"""

import contextlib
from dataclasses import dataclass
from typing import Any

from rich.console import Group

from publisher.audit.relay_audit import CopyReport
from publisher.commands.audit import count_copies
from publisher.relay.settings import load as load_relay
from publisher.runtime.context import now_ms
from scorer.demo.broker.kraft_config import HOST, free_ports
from scorer.demo.options import FAR, NEAR, DemoOptions
from scorer.demo.run import PARTITIONS, Demo, caught_up, scores_by_version
from scorer.demo.sandbox import DemoSandbox, follow_up_commands, open_sandbox
from scorer.demo.score_reader import ReceivedScores, ScoreReader
from scorer.demo.summary import DemoSummary, DemoTimes, TopicSummary, VersionResult, by_version, latency, measured
from scorer.demo.view import DemoView

RELAY = """\
name: scores-to-{far_region}
source: {{region: {near_region}, bootstrap_servers: "{near}", topics: [{topic}]}}
destination: {{region: {far_region}, bootstrap_servers: "{far}"}}
http: {{listen: "{listen}"}}
"""


@dataclass(frozen=True, kw_only=True)
class CopySummary(TopicSummary):
    """The audit of the region with the copied scores.

    `events` is the number of scores to copy, and `scored` is the number of copied scores.
    """

    latency_before_kill_ms: dict[str, float]


@dataclass(frozen=True, slots=True)
class RegionsSummary:
    """The summaries of the region that scores (`near`) and of the region with the copies (`far`)."""

    near: DemoSummary
    far: CopySummary

    @property
    def clean(self) -> bool:
        """Whether the audits of both regions found no fault, and all scores were copied."""
        return self.near.clean and self.far.clean and self.far.events == self.near.scored

    def to_dict(self) -> dict[str, Any]:
        """Return the summaries as a dict of JSON values."""
        return {"clean": self.clean, "regions": {NEAR: self.near.to_dict(), FAR: self.far.to_dict()}}

    def table(self) -> Group:
        """Return the summaries as tables."""
        return Group(self.near.table(), self.far.table(f"copied scores in {FAR}", "scores"))


def demo(options: DemoOptions, view: DemoView) -> RegionsSummary:
    """Run the demo. Raises Fatal if a step fails. Processes and files are always removed unless `options.keep` is True."""
    with open_sandbox(options, view, follow_up_commands(options, "publisher status publisher.yaml --live")) as sandbox:
        demo = _RegionsDemo(options, view, sandbox)
        return RegionsSummary(demo.run(), demo.copied)


class _RegionsDemo(Demo):
    """A demo in which a publisher copies the scores to a second region. The publisher is killed instead of a scorer."""

    def __init__(self, options: DemoOptions, view: DemoView, sandbox: DemoSandbox) -> None:
        super().__init__(options, view, sandbox)
        near, self._far = sandbox.servers
        self._path = sandbox.folder / "publisher.yaml"
        self._starts = 0
        text = RELAY.format(
            near_region=NEAR,
            far_region=FAR,
            near=near,
            far=self._far,
            topic=self.settings.output.topic,
            listen=f"{HOST}:{free_ports()[0]}",
        )
        self._path.write_text(text, encoding="utf-8")
        self.relay = load_relay(self._path).settings

    def prepare(self, cleanup: contextlib.ExitStack) -> None:
        self.view.step(f"   Start a publisher, which copies the scores to {FAR} exactly once")
        far = self.relay.destination.kafka
        self.shell.run("publisher", "check", self._path.name, "--create")
        self._publish()
        reader = ScoreReader(far, self.settings.output.topic, PARTITIONS, self.far_arrivals)
        cleanup.enter_context(contextlib.closing(reader))

    def kill_scorer(self) -> None:
        self.view.step("6. Kill the publisher with SIGKILL, and restart it")
        self.killed_at = killed_at = now_ms()
        self.shell.kill(self.processes.pop("publisher"))
        self._publish()
        self.wait_for(f"{FAR} to catch up", lambda: caught_up(self.far_arrivals, killed_at))
        self.view.print_result(f"every partition in {FAR} is up to date {now_ms() - killed_at:,} ms after the kill")

    def wait_for_the_end(self, written: int) -> None:
        super().wait_for_the_end(written)
        self.wait_for(f"the last scores in {FAR}", lambda: len(self.far_arrivals.received) >= written, quiet=True)

    def count(self, marks: DemoTimes) -> DemoSummary:
        near = super().count(marks)
        report = count_copies(self.relay)
        far_kafka = self.settings.kafka.model_copy(update={"bootstrap_servers": self._far})
        versions = by_version(scores_by_version(self.settings.model_copy(update={"kafka": far_kafka})))
        self.copied = copied(report, versions, self.far_arrivals, marks)
        return near

    def _publish(self) -> None:
        self._starts += 1
        self.processes["publisher"] = self.shell.start(f"publisher-{self._starts}.log", "publisher", "run", self._path.name)


def copied(report: CopyReport, versions: dict[str, VersionResult], arrivals: ReceivedScores, marks: DemoTimes) -> CopySummary:
    """Return the summary of the copied scores. `versions` is the result of each version, computed from these scores. Pure."""
    return CopySummary(
        events=report.source,
        scored=report.copies - report.duplicates,
        missing=report.missing + report.pending,  # all copies have been waited for
        duplicates=report.duplicates,
        phantoms=report.phantoms + report.others,  # no other program writes to this topic
        out_of_order=report.out_of_order,
        versions=versions,
        latency_before_kill_ms=latency(arrivals, marks.began, marks.killed or marks.ended),
        **measured(arrivals, marks),
    )
