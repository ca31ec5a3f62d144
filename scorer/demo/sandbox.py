"""Where the demo plays: a folder, one embedded broker a region (or somebody else's), and the commands that run in it. Whatever
happens, what was started is stopped and removed, unless a person wants to keep it."""

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException

from publisher.errors import Fatal
from publisher.kafka.connection import connect
from scorer import topics
from scorer.demo.broker.embedded import EmbeddedBroker
from scorer.demo.broker.jars import classpath
from scorer.demo.options import DemoOptions, configure
from scorer.demo.processes import Shell
from scorer.demo.view import DemoView
from scorer.settings import Settings

MORE_FLIGHTS = "more-flights.jsonl"  # left in the folder with --keep
CLEAN_UP_SECONDS = 5.0  # a broker that does not answer is left as it is


@dataclass(frozen=True)
class Sandbox:
    """`settings` are those of scorer.yaml; `servers` has a broker's address for each region, the scorers' first."""

    folder: Path
    shell: Shell
    settings: Settings
    servers: Sequence[str]


@contextlib.contextmanager
def open_sandbox(options: DemoOptions, view: DemoView, how_to_go_on: Sequence[str] = ()) -> Iterator[Sandbox]:
    """Set it up, and clear it away. Raises Fatal, with the ends of all logs where a step fails. `how_to_go_on` are commands
    that somebody who keeps it may want to type."""
    folder = Path(tempfile.mkdtemp(prefix="scorestream-demo-"))
    shell = Shell(folder, view.command)
    with contextlib.ExitStack() as cleanup:
        if not options.keep:
            cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        brokers = [] if options.bootstrap_servers else _brokers(options, folder, view, cleanup)
        servers = [broker.bootstrap_servers for broker in brokers] or [str(options.bootstrap_servers)]
        settings = configure(options, folder, servers[0])
        if not options.keep:
            if not brokers:
                cleanup.callback(_clean_up, settings)
            cleanup.callback(shell.close)
        try:
            yield Sandbox(folder, shell, settings, servers)
        except Fatal as error:
            raise Fatal(f"{error}\n{_last_words(folder)}", error.hint, error.exit_code) from error
        finally:
            if options.keep:
                _how_to_go_on(view, folder, servers, how_to_go_on, [shell.running(), [broker.pid for broker in brokers]])


def kafka(port: int, view: DemoView) -> None:
    """Kafka alone, until Ctrl-C; what it holds goes with it. Raises Fatal where it does not start, or ends of itself."""
    classpath(on_progress=view.bar)
    with EmbeddedBroker(port=port) as broker:
        view.say(f"Apache Kafka 4.3 listens on {broker.bootstrap_servers}. Ctrl-C ends it, and what it holds is gone")
        raise Fatal(f"Kafka has ended with code {broker.wait()}", "start it again")


def _brokers(options: DemoOptions, folder: Path, view: DemoView, cleanup: contextlib.ExitStack) -> list[EmbeddedBroker]:
    several = len(options.regions) > 1
    view.step(f"1. Starting Apache Kafka 4.3 on loopback{', a cluster for each region' if several else ''}")
    classpath(on_progress=view.bar)
    brokers = [EmbeddedBroker(folder / f"kafka-{region}" if several else folder / "kafka") for region in options.regions]
    for broker in brokers if not options.keep else ():
        cleanup.callback(broker.stop)
    with ThreadPoolExecutor(len(brokers)) as pool:
        for starting in [pool.submit(broker.start) for broker in brokers]:
            starting.result()
    for broker, region in zip(brokers, options.regions, strict=True):
        if options.keep:
            broker.detach()
        where = f"{region}: " if several else ""
        view.say(f"{where}a real broker (KRaft) listens on {broker.bootstrap_servers}, process {broker.pid}")
    return brokers


def _clean_up(settings: Settings) -> None:
    """Leave nothing on a broker that is not ours: topics, and the group once its members are gone."""
    admin = connect(settings.kafka, f"{settings.name}.demo")
    deleted = admin.delete_topics([*topics.known(settings)], request_timeout=CLEAN_UP_SECONDS)
    left = admin.delete_consumer_groups([settings.name], request_timeout=CLEAN_UP_SECONDS)
    for answer in [*deleted.values(), *left.values()]:
        with contextlib.suppress(KafkaException):  # what was never made cannot be removed
            answer.result()


def _last_words(folder: Path) -> str:
    return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-2_000:]}" for log in sorted(folder.glob("*.log")))


def follow_up_commands(options: DemoOptions, *more: str) -> list[str]:
    """What somebody who keeps this demo may want to type."""
    again = ["scorer run scorer.yaml --workers 1 --set replica=a &   # the one that was killed"]
    return [
        "scorer status scorer.yaml",
        "scorer tail scorer.yaml --from-beginning --events 3",
        *(again if options.kill and not options.copied else []),
        f"scorer emit scorer.yaml --key '{{carrier}}-{{flight}}' --rate 200 < {MORE_FLIGHTS} &",
        *more,
        "scorer rollback scorer.yaml --reason 'going back' --wait",
        "scorer promote scorer.yaml --to 2.0.0 --reason 'forward again' --wait",
    ]


def _how_to_go_on(view: DemoView, folder: Path, servers: Sequence[str], commands: Sequence[str], pids: list[list[int]]) -> None:
    """`pids` are the processes to end, first those that have to be heard out by the others."""
    view.step(f"Everything goes on in {folder}, and Kafka on {' and '.join(servers)}. To go on playing:")
    ends = "; sleep 5; ".join(f"kill {' '.join(map(str, group))}" for group in pids if group)
    for line in (
        f"cd {folder}; export PATH={Path(sys.executable).parent}:$PATH",
        *commands,
        f"{ends}; sleep 5; rm -r {folder}   # the end; and what you started yourself",
    ):
        view.command(line)
