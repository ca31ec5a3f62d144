"""The demo, step by step: each step runs the installed commands and waits for its effect before the next one begins."""

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import orjson
from confluent_kafka import KafkaException

from publisher import audit_topics
from publisher.connection import connect
from publisher.errors import Fatal
from scorer import audit, topics
from scorer.demo import flights
from scorer.demo.arrivals import LiveReader
from scorer.demo.broker import EmbeddedBroker
from scorer.demo.options import SESSION_TIMEOUT_MS, Options, configure, move_flags, now_ms
from scorer.demo.processes import Feed, Shell
from scorer.demo.summary import Marks, Summary, summarise
from scorer.demo.view import View
from scorer.settings import Settings
from scorer.status import fleet, state
from scorer.tail import read_to_end, tail

PARTITIONS = 6
CLEAN_UP_SECONDS = 5.0  # a broker that does not answer is left as it is
STEP_SECONDS = 120.0  # a step whose effect does not show for so long has failed
FIRST_EVENTS, FIRST_RATE = 1_000, 500.0
QUIET_MS = 1_000  # a partition has caught up when its newest score took less than this
CONSOLE_TOLD = "the console is at "
OLD, NEW = "1.0.0", "2.0.0"


def demo(options: Options, view: View) -> Summary:
    """Run it all. Raises Fatal where a step fails; what was started is stopped and removed, whatever happens."""
    folder = Path(tempfile.mkdtemp(prefix="scorestream-demo-"))
    shell = Shell(folder, view.command)
    with contextlib.ExitStack() as cleanup:
        if not options.keep:
            cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        broker = None if options.bootstrap_servers else _broker(options, folder, view, cleanup)
        servers = broker.bootstrap_servers if broker else str(options.bootstrap_servers)
        settings = configure(options, folder, servers)
        if not options.keep:
            if broker is None:
                cleanup.callback(_clean_up, settings)
            cleanup.callback(shell.close)
        try:
            return _Demo(options, view, shell, settings).play()
        except Fatal as error:
            raise Fatal(f"{error}\n{_last_words(folder)}", error.hint, error.exit_code) from error
        finally:
            if options.keep:
                pids = [*shell.running(), *([broker.pid] if broker else [])]
                _how_to_go_on(view, folder, pids, options.repository, move_flags(options, settings))


def _broker(options: Options, folder: Path, view: View, cleanup: contextlib.ExitStack) -> EmbeddedBroker:
    view.step("1. Starting Apache Kafka 4.3 on loopback")
    broker = EmbeddedBroker(folder / "kafka", on_progress=view.bar)
    broker.start()
    if options.keep:
        broker.detach()
    else:
        cleanup.callback(broker.stop)
    view.say(f"a real broker (KRaft) listens on {broker.bootstrap_servers}, process {broker.pid}")
    return broker


def _clean_up(settings: Settings) -> None:
    """Leave nothing on a broker that is not ours: topics, and the group once its members are gone."""
    admin = connect(settings.kafka, f"{settings.name}.demo")
    deleted = admin.delete_topics([*topics.known(settings)], request_timeout=CLEAN_UP_SECONDS)
    left = admin.delete_consumer_groups([settings.name], request_timeout=CLEAN_UP_SECONDS)
    for answer in [*deleted.values(), *left.values()]:
        with contextlib.suppress(KafkaException):  # what was never made cannot be removed
            answer.result()


def _last_words(folder: Path) -> str:
    """The ends of the scorers' logs."""
    ends = [f"{log.name}: {log.read_text(errors='replace')[-2_000:]}" for log in sorted(folder.glob("*.log"))]
    return "\n".join(ends)


def _how_to_go_on(view: View, folder: Path, pids: list[int], repository: str, flags: list[str]) -> None:
    view.step(f"Everything goes on in {folder}. To go on playing:")
    for line in (
        f"cd {folder}",
        "scorer status scorer.yaml",
        "scorer tail scorer.yaml --from-beginning --events 3",
        f"model-registry rollback {repository} --reason 'going back' --wait {' '.join(flags)}",
        f"model-registry status {repository} {' '.join(flags)}",
        f"kill {' '.join(map(str, pids))}; sleep 5; rm -r {folder}   # the end",
    ):
        view.command(line)


class _Demo:
    """One run, its processes and what has been seen so far."""

    def __init__(self, options: Options, view: View, shell: Shell, settings: Settings) -> None:
        self.options = options
        self.view = view
        self.shell = shell
        self.settings = settings
        self.killed_at: int | None = None

    def play(self) -> Summary:
        """Steps 2 to 7."""
        self.make_registry()
        scorers = self.start_scorers()
        reader = LiveReader(self.settings.kafka, self.settings.output.topic, PARTITIONS)
        self.arrivals = reader.arrivals
        with contextlib.closing(reader):
            lines = endless_flights()
            first = self.look(lines)
            began = now_ms()
            feed = self.replay(lines, first)
            promoted = self.swap()
            if self.options.kill:
                self.kill_one(scorers)
            self.wait_for("the replay", lambda: first + feed.count >= self.options.events)
            written = first + feed.finish()
            self.wait_for("the last scores", lambda: len(self.arrivals.received) >= written, quiet=True)
            ended = now_ms()
            if not self.options.keep:
                for process in scorers.values():
                    if process.poll() is None:
                        self.shell.stop(process)
            return self.count(Marks(began, promoted, self.killed_at, ended))

    def make_registry(self) -> None:
        where = self.options.registry or "a folder"
        self.view.step(f"2. Two versions of flight-delay into a model registry ({where}), prod points at 1.0.0")
        plain = ["--plain-http"] if self.options.plain_http else []
        repository = self.options.repository
        for version in (OLD, NEW):
            package = flights.DATA / f"flight-delay-{version}"
            pushed = self.shell.run("model-registry", "push", str(package), f"{repository}:{version}", *plain)
            self.view.say(f"{version} is {pushed['digest']}")
        self.shell.run("model-registry", "promote", repository, "--to", OLD, "--reason", "first version", *plain)

    def start_scorers(self) -> dict[str, subprocess.Popen[bytes]]:
        self.view.step("3. Topics, then two scorers in one consumer group")
        self.shell.run("scorer", "check", "scorer.yaml", "--create", "--partitions", str(PARTITIONS))
        scorers = {
            replica: self.shell.start(
                f"scorer-{replica}.log", "scorer", "run", "scorer.yaml", "--workers", "1", "--set", f"replica={replica}"
            )
            for replica in ("a", "b")
        }
        self._processes = scorers

        def shared_out() -> bool:
            owned = [len(s.partitions) for s in fleet(self.settings) if state(s, now_ms()) == "running"]
            return owned == [PARTITIONS // 2] * len(scorers)

        self.wait_for("both scorers to share the partitions", shared_out)
        self.view.say(f"each scores {PARTITIONS // 2} of {PARTITIONS} partitions")
        if self.options.console:
            self.show_console()
        return scorers

    def show_console(self) -> None:
        """Starts it, and prints its address."""
        log = self.shell.folder / "console.log"
        command = ("scorer", "console", "scorer.yaml", "--allow-actions", "--listen", "127.0.0.1:0")
        self._processes["console"] = self.shell.start(log.name, *command)
        self.wait_for("the console", lambda: CONSOLE_TOLD in log.read_text(errors="replace"))
        self.view.step(f"   Open {log.read_text(errors='replace').partition(CONSOLE_TOLD)[2].split()[0]} in a browser")

    def look(self, lines: Iterator[bytes]) -> int:
        """A few flights, slowly, so that a person sees a score and the fresh broker is warm; how many."""
        count = min(FIRST_EVENTS, self.options.events // 5)
        self.view.step(f"4. The first {count:,} flights, and what becomes of one")
        feed = Feed(self.emit("first.log", FIRST_RATE), islice(lines, count))
        self.wait_for("the first scores", lambda: len(self.arrivals.received) >= count)
        feed.finish()
        self.view.command("scorer tail scorer.yaml --from-beginning --events 1")
        for record in islice(tail(self.settings, from_beginning=True), 1):
            self.view.say(record.decode())
        return count

    def replay(self, lines: Iterator[bytes], first: int) -> Feed:
        self.view.step(f"   Then all the others, {self.options.events - first:,} at {self.options.rate:,.0f} a second")
        return Feed(self.emit("emit.log", self.options.rate), lines)

    def emit(self, log: str, rate: float) -> subprocess.Popen[bytes]:
        """`scorer emit`, waiting for lines."""
        command = ("scorer", "emit", "scorer.yaml", "--key", "{carrier}-{flight}", "--rate", f"{rate:g}")
        return self.shell.start(log, *command, feed=True)

    def swap(self) -> int:
        """Half-way; done when every partition shows the new version."""
        self.wait_for("half of the events", lambda: len(self.arrivals.received) >= self.options.events // 2)
        self.view.step(f"5. Half-way: promoting {NEW} while events flow")
        promoted = now_ms()
        move = ("promote", self.options.repository, "--to", NEW, "--reason", "better AUC", "--wait")
        rollout = self.shell.run("model-registry", *move, *move_flags(self.options, self.settings))["rollout"]
        self.view.say(f"both scorers serve it {rollout['seconds'] * 1_000:,.0f} ms after the tag moved")

        def swapped() -> bool:
            newest = dict(self.arrivals.newest)
            return len(newest) == PARTITIONS and all(version == NEW for version, _, _ in newest.values())

        self.wait_for(f"every partition to show {NEW}", swapped)
        self.view.say(f"every partition shows {NEW} in its scores after {now_ms() - promoted:,} ms")
        return promoted

    def kill_one(self, scorers: dict[str, subprocess.Popen[bytes]]) -> None:
        """At three quarters; done when the other scores its partitions without delay."""
        self.wait_for("three quarters", lambda: len(self.arrivals.received) >= self.options.events * 3 // 4)
        self.view.step("6. Three quarters: killing a scorer without mercy; the other takes over")
        self.killed_at = killed_at = now_ms()
        self.shell.kill(scorers.pop("a"))

        def caught_up() -> bool:
            newest = dict(self.arrivals.newest)
            return all(sent > killed_at and received - sent < QUIET_MS for _, sent, received in newest.values())

        self.wait_for("the other scorer to catch up", caught_up)
        self.view.say(f"caught up after {now_ms() - killed_at:,} ms (the session timeout is {SESSION_TIMEOUT_MS:,} ms)")

    def count(self, marks: Marks) -> Summary:
        """From a second read from the start, by the audit; joined with how the flights ended."""
        self.view.step("7. Reading everything back from the start, read_committed, and counting")
        settings = self.settings
        report = audit_topics.audit(settings.kafka, audit.plan(settings))
        outcomes = flights.outcomes()
        scores: dict[str, list[tuple[float, bool | None]]] = {}
        for message in read_to_end(settings, settings.output.topic):
            record = orjson.loads(message.value() or b"{}")
            scores.setdefault(record["version"], []).append((record["score"], outcomes.get(record["id"])))
        cut_over = {}
        for message in read_to_end(settings, settings.swaps_topic):
            swap = orjson.loads(message.value() or b"{}")
            if swap["version"] == NEW:
                cut_over[f"{swap['topic']}[{swap['partition']}]"] = swap["cut_over_offset"]
        return summarise(report, scores, dict(sorted(cut_over.items())), self.arrivals, marks)

    def wait_for(self, what: str, done: Callable[[], bool], *, quiet: bool = False) -> None:
        """Until `done()`, with the live view. Raises Fatal where nothing moves any more, or a process has ended."""
        deadline, seen = time.monotonic() + STEP_SECONDS, -1
        while not done():
            arrivals = getattr(self, "arrivals", None)
            if arrivals is not None:
                self.view.bar(f"waiting for {what}" if quiet else what, len(arrivals.received), self.options.events)
                self.view.flow(arrivals)
                if len(arrivals.received) > seen:
                    deadline, seen = time.monotonic() + STEP_SECONDS, len(arrivals.received)
            for replica, process in self._processes.items():
                if process.poll() is not None:
                    raise Fatal(f"scorer {replica} ended with code {process.returncode} while waiting for {what}")
            if time.monotonic() > deadline:
                raise Fatal(f"{what} did not come within {STEP_SECONDS:.0f} s")
            time.sleep(0.1)


def endless_flights() -> Iterator[bytes]:
    """The flights in time order, lap after lap."""
    return flights.lines(2**62)
