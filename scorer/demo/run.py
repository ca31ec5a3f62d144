"""The demo, step by step: each step runs the installed commands and waits for its effect before the next one begins."""

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import islice

import orjson

from publisher.audit import scorer_audit as audit_topics
from publisher.errors import Fatal
from scorer.console.scorer_fold import last_states
from scorer.demo import flights
from scorer.demo.options import FAR, NEAR, SESSION_TIMEOUT_MS, DemoOptions
from scorer.demo.processes import EventFeed
from scorer.demo.sandbox import MORE_FLIGHTS, Sandbox, follow_up_commands, open_sandbox
from scorer.demo.score_reader import ReceivedScores, ScoreReader, now_ms
from scorer.demo.summary import DemoSummary, DemoTimes, summarise
from scorer.demo.view import DemoView
from scorer.observability.audit_plan import audit_plan
from scorer.observability.output_topics import read_lines, read_to_end
from scorer.settings import Settings

PARTITIONS = 6
STEP_SECONDS = 120.0  # a step whose effect does not show for so long has failed
FIRST_EVENTS, FIRST_RATE = 1_000, 500.0
QUIET_MS = 1_000  # a partition has caught up when its newest score took less than this
CONSOLE_TOLD = "the console is at "
OLD, NEW = "1.0.0", "2.0.0"
REPLICAS = ("a", "b")
PROMOTION = "boosted trees on more columns"
"""Why the new version is promoted. Not by the figures at the end: each version answers other flights."""
KEPT_FLIGHTS = 20_000


def demo(options: DemoOptions, view: DemoView) -> DemoSummary:
    """Run it all. Raises Fatal where a step fails; what was started is stopped and removed, whatever happens."""
    with open_sandbox(options, view, follow_up_commands(options)) as where:
        return Demo(options, view, where).play()


class Demo:
    """One run, its processes by name, and what has been seen so far: `arrivals` where the flights are scored, `far_arrivals`
    where the scores are copied to."""

    def __init__(self, options: DemoOptions, view: DemoView, where: Sandbox) -> None:
        self.options = options
        self.view = view
        self.shell = where.shell
        self.settings = where.settings
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.arrivals, self.far_arrivals = ReceivedScores(), ReceivedScores()
        self.killed_at: int | None = None

    def play(self) -> DemoSummary:
        self.make_registry()
        self.start_scorers()
        with contextlib.ExitStack() as cleanup:
            reader = ScoreReader(self.settings.kafka, self.settings.output.topic, PARTITIONS, self.arrivals)
            cleanup.enter_context(contextlib.closing(reader))
            self.prepare(cleanup)
            lines = flights.lines()
            first = self.look(lines)
            began = now_ms()
            self.view.step(f"   Then all the others, {self.options.events - first:,} at {self.options.rate:,.0f} a second")
            feed = EventFeed(self.emit("emit.log", self.options.rate), lines)
            promoted = self.swap()
            if self.options.kill:
                self.kill_one()
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

    def prepare(self, cleanup: contextlib.ExitStack) -> None:
        """Whatever else is to run before the flights come; `cleanup` ends it."""

    def make_registry(self) -> None:
        where = self.options.registry or "a folder"
        self.view.step(f"2. Two versions of flight-delay into a model registry ({where}), prod points at 1.0.0")
        registry, repository = self.options.registry_command, self.options.repository
        for version in (OLD, NEW):
            package = flights.DATA / f"flight-delay-{version}"
            pushed = self.shell.run(*registry, "push", str(package), f"{repository}:{version}")
            self.view.say(f"{version} is {pushed['digest']}")
        self.shell.run(*registry, "promote", repository, "--to", OLD, "--reason", "first version")

    def start_scorers(self) -> None:
        self.view.step("3. Topics, then two scorers in one consumer group")
        self.shell.run("scorer", "check", "scorer.yaml", "--create", "--partitions", str(PARTITIONS))
        for replica in REPLICAS:
            self.processes[f"scorer {replica}"] = self.shell.start(
                f"scorer-{replica}.log", "scorer", "run", "scorer.yaml", "--workers", "1", "--set", f"replica={replica}"
            )

        def shared_out() -> bool:
            now = time.time()
            states = last_states(read_to_end(self.settings, self.settings.status_topic), now)
            owned = [len(each.status.partitions) for each in states if each.state(now) == "running"]
            return owned == [PARTITIONS // len(REPLICAS)] * len(REPLICAS)

        self.wait_for("both scorers to share the partitions", shared_out)
        self.view.say(f"each scores {PARTITIONS // 2} of {PARTITIONS} partitions")
        if self.options.console:
            self.show_console()

    def show_console(self) -> None:
        log = self.shell.folder / "console.log"
        command = ("scorer", "console", "scorer.yaml", "--allow-actions", "--listen", "127.0.0.1:0")
        self.processes["console"] = self.shell.start(log.name, *command)
        self.wait_for("the console", lambda: CONSOLE_TOLD in log.read_text(errors="replace"))
        self.view.step(f"   Open {log.read_text(errors='replace').partition(CONSOLE_TOLD)[2].split()[0]} in a browser")

    def look(self, lines: Iterator[bytes]) -> int:
        """A few flights, slowly, so that a person sees a score and the fresh broker is warm; how many."""
        count = min(FIRST_EVENTS, self.options.events // 5)
        self.view.step(f"4. The first {count:,} flights, and what becomes of one")
        feed = EventFeed(self.emit("first.log", FIRST_RATE), islice(lines, count))
        self.wait_for("the first scores", lambda: self.seen() >= count)
        feed.finish()
        self.view.command("scorer tail scorer.yaml --from-beginning --events 1")
        for record in islice(read_lines(self.settings, from_beginning=True), 1):
            self.view.say(record.decode())
        return count

    def emit(self, log: str, rate: float) -> subprocess.Popen[bytes]:
        command = ("scorer", "emit", "scorer.yaml", "--key", "{carrier}-{flight}", "--rate", f"{rate:g}")
        return self.shell.start(log, *command, feed=True)

    def swap(self) -> int:
        """Half-way; done when every partition shows the new version."""
        self.wait_for("half of the events", lambda: self.seen() >= self.options.events // 2)
        self.view.step(f"5. Half-way: promoting {NEW} while events flow")
        promoted = now_ms()
        move = ("promote", "scorer.yaml", "--to", NEW, "--reason", PROMOTION, "--wait")
        rollout = self.shell.run("scorer", *move)["rollout"]
        self.view.say(f"both scorers serve it {rollout['seconds'] * 1_000:,.0f} ms after the tag moved")

        def swapped() -> bool:
            newest = dict(self.arrivals.newest)
            return len(newest) == PARTITIONS and all(version == NEW for version, _, _ in newest.values())

        self.wait_for(f"every partition to show {NEW}", swapped)
        self.view.say(f"every partition shows {NEW} in its scores after {now_ms() - promoted:,} ms")
        return promoted

    def kill_one(self) -> None:
        """At three quarters; done when the other scores its partitions without delay."""
        self.wait_for("three quarters", lambda: self.seen() >= self.options.events * 3 // 4)
        self.view.step("6. Three quarters: killing a scorer without mercy; the other takes over")
        self.killed_at = killed_at = now_ms()
        self.shell.kill(self.processes.pop("scorer a"))
        self.wait_for("the other scorer to catch up", lambda: caught_up(self.arrivals, killed_at))
        self.view.say(f"caught up after {now_ms() - killed_at:,} ms (the session timeout is {SESSION_TIMEOUT_MS:,} ms)")

    def wait_for_the_end(self, written: int) -> None:
        self.wait_for("the last scores", lambda: self.seen() >= written, quiet=True)

    def count(self, marks: DemoTimes) -> DemoSummary:
        """From a second read from the start, by the audit; joined with how the flights ended."""
        self.view.step("7. Reading everything back from the start, read_committed, and counting")
        settings = self.settings
        report = audit_topics.audit(settings.kafka, audit_plan(settings))
        cut_over = {}
        for message in read_to_end(settings, settings.swaps_topic):
            swap = orjson.loads(message.value() or b"{}")
            if swap["version"] == NEW:
                cut_over[f"{swap['topic']}[{swap['partition']}]"] = swap["cut_over_offset"]
        return summarise(report, scores_by_version(settings), dict(sorted(cut_over.items())), self.arrivals, marks)

    def seen(self) -> int:
        return len(self.arrivals.received)

    def wait_for(self, what: str, done: Callable[[], bool], *, quiet: bool = False) -> None:
        """Until `done()`, with the live view. Raises Fatal where nothing moves any more, or a process has ended."""
        deadline, seen = time.monotonic() + STEP_SECONDS, -1
        while not done():
            if self.seen():
                self.view.bar(f"waiting for {what}" if quiet else what, self.seen(), self.options.events)
                self.view.flow({NEAR: self.arrivals} | ({FAR: self.far_arrivals} if self.options.copied else {}))
            if self.seen() > seen:
                deadline, seen = time.monotonic() + STEP_SECONDS, self.seen()
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise Fatal(f"{name} ended with code {process.returncode} while waiting for {what}")
            if time.monotonic() > deadline:
                raise Fatal(f"{what} did not come within {STEP_SECONDS:.0f} s")
            time.sleep(0.1)


def caught_up(arrivals: ReceivedScores, since: int) -> bool:
    """Whether every partition shows scores of events sent after `since` (Unix ms), and soon after they were sent."""
    newest = dict(arrivals.newest)
    return bool(newest) and all(sent > since and received - sent < QUIET_MS for _, sent, received in newest.values())


def scores_by_version(settings: Settings) -> dict[str, list[tuple[float, bool | None]]]:
    """Every score in the topic, with the known outcome of its flight. Raises Fatal where it cannot be read."""
    outcomes = flights.outcomes()
    scores: dict[str, list[tuple[float, bool | None]]] = {}
    for message in read_to_end(settings, settings.output.topic):
        record = orjson.loads(message.value() or b"{}")
        scores.setdefault(record["version"], []).append((record["score"], outcomes.get(flights.first_lap(record["id"]))))
    return scores
