"""The sandbox of the demo: a folder, the brokers (an embedded one for each region, or the user's), and a shell for commands.

All processes and files are removed at the end, unless the user keeps them.
"""

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

MORE_FLIGHTS = "more-flights.jsonl"  # further flights for the user, written with --keep
CLEAN_UP_SECONDS = 5.0  # time limit for deleting the topics and the group


@dataclass(frozen=True)
class DemoSandbox:
    """The folder, the shell, the settings and the brokers of a demo.

    Attributes:
        settings: The settings in scorer.yaml.
        servers: The bootstrap servers of each region, in the order of `DemoOptions.regions`.
    """

    folder: Path
    shell: Shell
    settings: Settings
    servers: Sequence[str]


@contextlib.contextmanager
def open_sandbox(options: DemoOptions, view: DemoView, next_commands: Sequence[str] = ()) -> Iterator[DemoSandbox]:
    """Open the sandbox of a demo (folder, brokers and shell). Remove it at the end unless `options.keep` is True.

    Args:
        options: The options of the demo.
        view: Prints the steps.
        next_commands: Commands to print if the sandbox is kept.

    Raises:
        Fatal: If a step fails; the message contains the end of each log.
    """
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
            yield DemoSandbox(folder, shell, settings, servers)
        except Fatal as error:
            raise Fatal(f"{error}\n{_log_ends(folder)}", error.hint, error.exit_code) from error
        finally:
            if options.keep:
                _print_next_commands(
                    view, folder, servers, next_commands, [shell.running(), [broker.pid for broker in brokers]]
                )


def kafka(port: int, view: DemoView) -> None:
    """Run only Kafka until Ctrl-C, then remove its data. Raises Fatal if Kafka does not start or ends by itself."""
    classpath(on_progress=view.bar)
    with EmbeddedBroker(port=port) as broker:
        view.print_result(f"Apache Kafka 4.3 listens on {broker.bootstrap_servers}. Ctrl-C stops it and removes its data")
        raise Fatal(f"Kafka has ended with code {broker.wait()}", "run the command again")


def _brokers(options: DemoOptions, folder: Path, view: DemoView, cleanup: contextlib.ExitStack) -> list[EmbeddedBroker]:
    several = len(options.regions) > 1
    view.step(f"1. Start Apache Kafka 4.3 on loopback{', a cluster for each region' if several else ''}")
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
        view.print_result(f"{where}a real broker (KRaft) listens on {broker.bootstrap_servers}, process {broker.pid}")
    return brokers


def _clean_up(settings: Settings) -> None:
    """Delete the topics and the group of the demo from the user's broker."""
    admin = connect(settings.kafka, f"{settings.name}.demo")
    deleted = admin.delete_topics([*topics.all_topics(settings)], request_timeout=CLEAN_UP_SECONDS)
    groups = admin.delete_consumer_groups([settings.name], request_timeout=CLEAN_UP_SECONDS)
    for answer in [*deleted.values(), *groups.values()]:
        with contextlib.suppress(KafkaException):  # a topic or group that was never created
            answer.result()


def _log_ends(folder: Path) -> str:
    return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-2_000:]}" for log in sorted(folder.glob("*.log")))


def follow_up_commands(options: DemoOptions, *more: str) -> list[str]:
    """Return the commands that the user can try after the demo, which are printed with --keep."""
    restart = ["scorer run scorer.yaml --workers 1 --set replica=a &   # the killed scorer"]
    return [
        "scorer status scorer.yaml",
        "scorer tail scorer.yaml --from-beginning --events 3",
        *(restart if options.kill and not options.copied else []),
        f"scorer emit scorer.yaml --key '{{carrier}}-{{flight}}' --rate 200 < {MORE_FLIGHTS} &",
        *more,
        "scorer rollback scorer.yaml --reason 'going back' --wait",
        f"scorer promote scorer.yaml --to {'3.0.0' if options.tables else '2.0.0'} --reason 'forward again' --wait",
    ]


def _print_next_commands(
    view: DemoView, folder: Path, servers: Sequence[str], commands: Sequence[str], pids: list[list[int]]
) -> None:
    """Print the commands that continue the demo, and the command that stops all processes and removes the folder.

    `pids` are groups of process ids, which are stopped one group after the other.
    """
    view.step(f"Everything keeps running in {folder}, with Kafka on {' and '.join(servers)}. Commands to try:")
    stop = "; sleep 5; ".join(f"kill {' '.join(map(str, group))}" for group in pids if group)
    for line in (
        f"cd {folder}; export PATH={Path(sys.executable).parent}:$PATH",
        *commands,
        f"{stop}; sleep 5; rm -r {folder}   # stop and remove everything, except what you started yourself",
    ):
        view.command(line)
