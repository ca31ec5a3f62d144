"""The steps of the demo. Each step runs installed commands and waits for their effect."""

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import orjson

from publisher.audit import scorer_audit as audit_topics
from publisher.errors import Fatal
from publisher.runtime.context import now_ms
from scorer.console.scorer_fold import last_states
from scorer.demo import flights
from scorer.demo.options import FAR, NEAR, SESSION_TIMEOUT_MS, DemoOptions
from scorer.demo.processes import EventFeed
from scorer.demo.sandbox import MORE_FLIGHTS, DemoSandbox, follow_up_commands, open_sandbox
from scorer.demo.score_reader import ReceivedScores, ScoreReader
from scorer.demo.summary import DemoSummary, DemoTimes, summarise
from scorer.demo.view import DemoView
from scorer.observability.audit_plan import audit_plan
from scorer.observability.read_output_topics import read_lines, read_to_end
from scorer.settings import Settings

PARTITIONS = 6
STEP_SECONDS = 120.0  # the longest time without a further score before a step fails
FIRST_EVENTS = 1_000
FIRST_RATE = 500.0
CAUGHT_UP_MS = 1_000  # a partition has caught up when the latency of its newest score is less than this
CONSOLE_ADDRESS = "the console is at "
OLD = "1.0.0"
NEW = "2.0.0"
REPLICAS = ("a", "b")
PROMOTION = "boosted trees on more columns"
"""The `--reason` of the promotion. It states no results of the demo, because each version scores different flights."""
KEPT_FLIGHTS = 20_000


def demo(options: DemoOptions, view: DemoView) -> DemoSummary:
    """Run the demo. Raises Fatal if a step fails. Processes and files are always removed unless `options.keep` is True."""
    with open_sandbox(options, view, follow_up_commands(options)) as sandbox:
        return Demo(options, view, sandbox).run()


class Demo:
    """One execution of the demo.

    Attributes:
        old: The version that scores first.
        new: The version that is promoted while events flow.
        reason: The `--reason` of the promotion.
        processes: The running processes by name.
        arrivals: The scores received in the region that scores.
        far_arrivals: The scores received in the region with the copies.
        killed_at: When a process was killed, in Unix ms; None if no process was killed.
    """

    old = OLD
    new = NEW
    reason = PROMOTION

    def __init__(self, options: DemoOptions, view: DemoView, sandbox: DemoSandbox) -> None:
        self.options = options
        self.view = view
        self.shell = sandbox.shell
        self.settings = sandbox.settings
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.arrivals = ReceivedScores()
        self.far_arrivals = ReceivedScores()
        self.killed_at: int | None = None

    def run(self) -> DemoSummary:
        """Run all steps and return the summary. Raises Fatal if a step fails."""
        self.make_registry()
        self.start_scorers()
        with contextlib.ExitStack() as cleanup:
            reader = ScoreReader(self.settings.kafka, self.settings.output.topic, PARTITIONS, self.arrivals)
            cleanup.enter_context(contextlib.closing(reader))
            self.prepare(cleanup)
            lines = self.lines()
            first = self.score_first_flights(lines)
            began = now_ms()
            self.view.step(
                f"   Replay the other {self.options.events - first:,} flights at {self.options.rate:,.0f} per second"
            )
            feed = EventFeed(self.emit("emit.log", self.options.rate), lines)
            promoted = self.swap()
            if self.options.kill:
                self.kill_scorer()
            self.wait_for("the replay", lambda: first + feed.count >= self.options.events)
            written = first + feed.finish()
            self.wait_for_the_end(written)
            ended = now_ms()
            if self.options.keep:
                (self.shell.folder / MORE_FLIGHTS).write_bytes(b"".join(line + b"\n" for line in islice(lines, KEPT_FLIGHTS)))
            else:
                for process in self.processes.values():
                    self.shell.stop(process)
            return self.count(DemoTimes(began, promoted, self.killed_at, ended))

    def lines(self) -> Iterator[bytes]:
        """Return the flights to replay, as JSON."""
        return flights.lines()

    def prepare(self, cleanup: contextlib.ExitStack) -> None:
        """Start further processes before the replay, and register their clean-up with `cleanup`. Subclasses override this."""

    def make_registry(self) -> None:
        """Push both model versions and promote the old one."""
        place = self.options.registry or "a folder"
        self.view.step(f"2. Push two versions of flight-delay to a model registry ({place}), and promote {self.old} to prod")
        registry = self.options.registry_command
        repository = self.options.repository
        for version in (self.old, self.new):
            package = self.package(version)
            pushed = self.shell.run(*registry, "push", str(package), f"{repository}:{version}")
            self.view.print_result(f"{version} is {pushed['digest']}")
        self.shell.run(*registry, "promote", repository, "--to", self.old, "--reason", "first version")

    def package(self, version: str) -> Path:
        """Return the folder of the package of a version."""
        return flights.DATA / f"flight-delay-{version}"

    def start_scorers(self) -> None:
        """Create the topics and start the scorers."""
        self.view.step("3. Create the topics, and start two scorers in one consumer group")
        self.shell.run("scorer", "check", "scorer.yaml", "--create", "--partitions", str(PARTITIONS))
        self.fill_topics()
        for replica in REPLICAS:
            self.processes[f"scorer {replica}"] = self.shell.start(
                f"scorer-{replica}.log", "scorer", "run", "scorer.yaml", "--workers", "1", "--set", f"replica={replica}"
            )

        def partitions_shared() -> bool:
            now = time.time()
            states = last_states(read_to_end(self.settings, self.settings.status_topic), now)
            owned = [len(each.status.partitions) for each in states if each.state(now) == "running"]
            return owned == [PARTITIONS // len(REPLICAS)] * len(REPLICAS)

        self.wait_for("both scorers to share the partitions", partitions_shared)
        self.view.print_result(f"each scores {PARTITIONS // 2} of {PARTITIONS} partitions")
        if self.options.console:
            self.show_console()

    def fill_topics(self) -> None:
        """Write the records that must exist before the scorers start. Subclasses override this."""

    def show_console(self) -> None:
        """Start the console and print its address."""
        log = self.shell.folder / "console.log"
        command = ("scorer", "console", "scorer.yaml", "--allow-actions", "--listen", "127.0.0.1:0")
        self.processes["console"] = self.shell.start(log.name, *command)
        self.wait_for("the console", lambda: CONSOLE_ADDRESS in log.read_text(errors="replace"))
        self.view.step(f"   Open {log.read_text(errors='replace').partition(CONSOLE_ADDRESS)[2].split()[0]} in a browser")

    def score_first_flights(self, lines: Iterator[bytes]) -> int:
        """Score a few flights slowly to warm up the broker, print one score, and return the number of flights."""
        count = min(FIRST_EVENTS, self.options.events // 5)
        self.view.step(f"4. Score the first {count:,} flights, and print one score")
        feed = EventFeed(self.emit("first.log", FIRST_RATE), islice(lines, count))
        self.wait_for("the first scores", lambda: self.seen() >= count)
        feed.finish()
        self.view.command("scorer tail scorer.yaml --from-beginning --events 1")
        for record in islice(read_lines(self.settings, from_beginning=True), 1):
            self.view.print_result(record.decode())
        return count

    def emit(self, log: str, rate: float) -> subprocess.Popen[bytes]:
        """Start `scorer emit`, which reads flights from its stdin."""
        command = ("scorer", "emit", "scorer.yaml", "--key", "{carrier}-{flight}", "--rate", f"{rate:g}")
        return self.shell.start(log, *command, feed=True)

    def swap(self) -> int:
        """Promote the new version after half of the flights, and wait until every partition has scores of this version.

        Returns:
            The time of the promotion in Unix ms.
        """
        self.wait_for("half of the events", lambda: self.seen() >= self.options.events // 2)
        self.view.step(f"5. After half of the flights: promote {self.new} while events flow")
        promoted = now_ms()
        move = ("promote", "scorer.yaml", "--to", self.new, "--reason", self.reason, "--wait")
        rollout = self.shell.run("scorer", *move)["rollout"]
        self.view.print_result(f"both scorers serve it {rollout['seconds'] * 1_000:,.0f} ms after the move of the channel")

        def swapped() -> bool:
            newest = dict(self.arrivals.newest)
            return len(newest) == PARTITIONS and all(version == self.new for version, _, _ in newest.values())

        self.wait_for(f"every partition to show {self.new}", swapped)
        self.view.print_result(f"every partition has scores of {self.new} after {now_ms() - promoted:,} ms")
        return promoted

    def kill_scorer(self) -> None:
        """Kill a scorer after three quarters of the flights, and wait until the other scorer has caught up."""
        self.wait_for("three quarters", lambda: self.seen() >= self.options.events * 3 // 4)
        self.view.step("6. After three quarters: kill a scorer with SIGKILL; the other takes over")
        self.killed_at = killed_at = now_ms()
        self.shell.kill(self.processes.pop("scorer a"))
        self.wait_for("the other scorer to catch up", lambda: caught_up(self.arrivals, killed_at))
        self.view.print_result(
            f"caught up after {now_ms() - killed_at:,} ms (the session timeout is {SESSION_TIMEOUT_MS:,} ms)"
        )

    def wait_for_the_end(self, written: int) -> None:
        """Wait until all written flights are scored."""
        self.wait_for("the last scores", lambda: self.seen() >= written, quiet=True)

    def count(self, marks: DemoTimes) -> DemoSummary:
        """Audit the topics from the start, and join the scores with the outcomes of the flights."""
        self.view.step("7. Read all topics from the start (read_committed), and count")
        settings = self.settings
        report = audit_topics.audit(settings.kafka, audit_plan(settings))
        cut_over = {}
        for message in read_to_end(settings, settings.swaps_topic):
            swap = orjson.loads(message.value() or b"{}")
            if swap["version"] == self.new:
                cut_over[f"{swap['topic']}[{swap['partition']}]"] = swap["cut_over_offset"]
        return summarise(report, scores_by_version(settings), dict(sorted(cut_over.items())), self.arrivals, marks)

    def seen(self) -> int:
        """Return the number of scores received in the region that scores."""
        return len(self.arrivals.received)

    def wait_for(self, event: str, done: Callable[[], bool], *, quiet: bool = False) -> None:
        """Wait until `done()` is True, and update the live view.

        `event` completes the message "waiting for ...", such as `the last scores`. The live view shows the whole message if
        `quiet` is True, else only `event`.

        Raises Fatal if no further score arrives for STEP_SECONDS, or if a process has ended.
        """
        deadline = time.monotonic() + STEP_SECONDS
        seen = -1
        while not done():
            if self.seen():
                self.view.bar(f"waiting for {event}" if quiet else event, self.seen(), self.options.events)
                self.view.flow({NEAR: self.arrivals} | ({FAR: self.far_arrivals} if self.options.copied else {}))
            if self.seen() > seen:
                deadline = time.monotonic() + STEP_SECONDS
                seen = self.seen()
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise Fatal(f"{name} ended with code {process.returncode} while waiting for {event}")
            if time.monotonic() > deadline:
                raise Fatal(f"waited {STEP_SECONDS:.0f} s for {event} without progress")
            time.sleep(0.1)


def caught_up(arrivals: ReceivedScores, since: int) -> bool:
    """Return whether the newest score of each partition is recent and without delay.

    It is recent if its event was sent after `since` (Unix ms), and without delay if its latency is below CAUGHT_UP_MS.
    """
    newest = dict(arrivals.newest)
    return bool(newest) and all(sent > since and received - sent < CAUGHT_UP_MS for _, sent, received in newest.values())


def scores_by_version(settings: Settings) -> dict[str, list[tuple[float, bool | None]]]:
    """Return all scores by version, each with its flight's outcome (None if unknown). Raises Fatal if a read fails."""
    outcomes = flights.outcomes()
    scores: dict[str, list[tuple[float, bool | None]]] = {}
    for message in read_to_end(settings, settings.output.topic):
        record = orjson.loads(message.value() or b"{}")
        scores.setdefault(record["version"], []).append((record["score"], outcomes.get(flights.original_id(record["id"]))))
    return scores
