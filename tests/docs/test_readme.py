"""What the README says, done: its commands, its configuration, its producer and its consumer. Blocks run as they stand: only
addresses and the names of topics, group and repository are exchanged for the test's own."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
import yaml

from model_registry.package.signature import Signature
from scorer.demo import flights
from scorer.demo.broker.embedded import EmbeddedBroker
from scorer.events.decoder import Reason
from scorer.settings import Settings
from tests.docs.blocks import block, in_the_text, lines, pages
from tests.integration.registry.server import DockerRegistry, Tls, running
from tests.support.environment import ROOT
from tests.support.every_setting import setting_names
from tests.support.waiting import until

KAFKA, FAR_KAFKA, REGISTRY = "127.0.0.1:9092", "kafka.example.com:9092", "registry.example.com"
RUN = "scorer run scorer.yaml"
IDENTITY = "2013-09-01-UA-1545-EWR-0516"


def line_of(name: str, beginning: str) -> str:
    """The first line of a block that begins so."""
    return next(line for line in lines(name) if line.startswith(beginning))


def start_of(name: str) -> tuple[list[str], str, list[str]]:
    """The lines of a block before the one that runs the scorer, that line, and the lines after it."""
    every = lines(name)
    at = every.index(line_of(name, RUN))
    return every[:at], every[at], every[at + 1 :]


class Reader:
    """A newcomer in a checkout of the sources, whose `scorer.yaml` is the README's. What was started is ended."""

    def __init__(self, folder: Path, servers: str, name: str) -> None:
        self.folder, self.name = folder, name
        self._ours = {KAFKA: servers, FAR_KAFKA: servers, '"my-app"': f'"{name}.app"', "name: flight-delay": f"name: {name}"}
        self._ours |= {"team/flight-delay": f"team/{name}"}
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(folder),
            "SCORER_HTTP__LISTEN": "127.0.0.1:0",
        }
        self._running: list[Terminal] = []
        (folder / "scorer").symlink_to(ROOT / "scorer")
        self.shell(in_the_text("cp -r "))
        (folder / "scorer.yaml").write_text(self.ours(block("configuration")))

    def exchange(self, theirs: str, ours: str) -> None:
        """One more name."""
        self._ours[theirs] = ours

    def ours(self, text: str) -> str:
        """The text with our addresses and names."""
        for theirs, ours in self._ours.items():
            text = text.replace(theirs, ours)
        return re.sub(r"(?<![\w/-])flights(?![\w-])", f"{self.name}.flights", text)

    def shell(self, line: str, *, code: int = 0) -> str:
        """A line of a shell block; its stdout."""
        done = subprocess.run(
            ["bash", "-c", self.ours(line)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            env=self.environment,
        )
        assert done.returncode == code, f"{self.ours(line)}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self, line: str) -> "Terminal":
        """A line that goes on for ever."""
        self._running.append(Terminal(self.ours(line), self.folder, self.environment))
        return self._running[-1]

    def python(self, block: str) -> str:
        """A python block; its stdout."""
        done = subprocess.run(
            [sys.executable, "-c", self.ours(block)], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def close(self) -> None:
        """End what runs."""
        for terminal in self._running:
            terminal.close()


class Terminal:
    """A terminal of its own for one command: programs hold lines back where they write into a pipe."""

    def __init__(self, line: str, folder: Path, environment: dict[str, str]) -> None:
        ours, theirs = pty.openpty()
        command, self.talk = ["bash", "-c", f"exec {line}"], folder / f"{ours}.talk"
        with self.talk.open("wb") as talk:
            self.process = subprocess.Popen(command, cwd=folder, env=environment, stdout=theirs, stderr=talk)
        os.close(theirs)
        self.shown = os.fdopen(ours)

    def lines(self, count: int) -> list[str]:
        """The next so many."""
        return [self.shown.readline() for _ in range(count)]

    def close(self) -> int:
        """SIGTERM; the exit code."""
        self.process.terminate()
        self.shown.close()
        return self.process.wait(60)


@pytest.fixture
def reader(tmp_path: Path, broker: EmbeddedBroker, unique: str) -> Iterator[Reader]:
    """See the class."""
    newcomer = Reader(tmp_path, broker.bootstrap_servers, unique)
    yield newcomer
    newcomer.close()


def test_the_readmes_commands_producer_and_consumer_work(reader: Reader) -> None:
    before, run, after = start_of("quickstart")
    for line in before:
        reader.shell(line)
    scorer = reader.start(run)
    reader.python(block("produce"))
    identity, _, version = reader.python(block("consume")).split()
    assert (identity, version) == (IDENTITY, "1.0.0")
    *moves, status = after
    assert moves
    for line in moves:
        reader.shell(line)
    workers = len(os.sched_getaffinity(0))
    until(lambda: [row.split()[-1] for row in reader.shell(status).splitlines()[2:]] == ["2.0.0"] * workers, "2.0.0")
    (reader.folder / "events.jsonl").write_bytes(b"\n".join(flights.lines(50)))
    reader.shell(in_the_text("scorer emit "))
    records = [json.loads(line) for line in reader.start(line_of("tail", "scorer tail")).lines(51)]
    assert [record["version"] for record in records].count("2.0.0") == 50
    assert set(records[0]) == set(json.loads(block("score")))
    assert scorer.close() == 0


@pytest.mark.debian("kcat")
def test_kcat_writes_and_reads_what_the_readme_says(reader: Reader) -> None:
    before, run, _ = start_of("quickstart")
    for line in before:
        reader.shell(line)
    (reader.folder / "event").write_bytes(b"UA-1545|" + next(flights.lines(1)) + b"\n")
    reader.shell(f"{in_the_text('kcat -P')} < event")
    reader.start(run)
    (record,) = reader.start(line_of("tail", "kcat -C")).lines(1)
    assert json.loads(record)["status"] == "scored"


@pytest.fixture
def secure_registry(tmp_path: Path) -> Iterator[tuple[DockerRegistry, Path]]:
    """A registry behind TLS, as all but those on loopback are, and the authority to trust."""
    folder, authority = tmp_path / "tls", trustme.CA()
    folder.mkdir()
    issued = authority.issue_cert("localhost")
    tls = Tls(folder / "server.pem", folder / "server.key", folder / "ca.pem")
    issued.private_key_pem.write_to_path(tls.key)
    authority.cert_pem.write_to_path(tls.ca)
    for blob in issued.cert_chain_pems:
        blob.write_to_path(tls.certificate, append=True)
    with running(DockerRegistry(tmp_path / "registry-data", tls=tls)) as started:
        yield started, tls.ca


@pytest.mark.debian("docker-registry")
def test_the_registrys_verbs_work_and_are_followed_by_a_scorer(
    reader: Reader, secure_registry: tuple[DockerRegistry, Path]
) -> None:
    registry, authority = secure_registry
    reader.exchange(REGISTRY, registry.address)
    source = f"{registry.address}/team/{reader.name}"
    reader.environment |= {"SSL_CERT_FILE": str(authority), "SCORER_MODEL__SOURCE": source}
    reader.shell("mv flight-delay-1.0.0 flight-delay-1.3.0; mv flight-delay-2.0.0 flight-delay-1.4.0")
    reader.shell(f"model-registry push ./flight-delay-1.3.0 {source}:1.3.0 && model-registry promote {source} --to 1.3.0")
    reader.shell("scorer check scorer.yaml --create")
    reader.start(start_of("quickstart")[1])
    watch = reader.start(next(line for line in lines("registry") if " watch " in line))
    until(lambda: "behind revision 1" in watch.talk.read_text(), "watch to begin: it shows later moves only")
    said = {line.split()[1]: reader.shell(line) for line in lines("registry") if " watch " not in line}
    assert list(said) == ["push", "inspect", "promote", "rollback", "status", "prune"]
    assert "~ model.onnx" in said["inspect"]
    assert "1.3.0 -> 1.4.0 (revision 2)" in said["promote"]
    assert "1.4.0 -> 1.3.0 (revision 3, back to revision 1)" in said["rollback"]
    assert "calibration" in said["status"]
    assert [json.loads(line)["revision"] for line in watch.lines(2)] == [2, 3]


def test_every_setting_and_every_reason_stands_in_the_pages() -> None:
    text = "\n".join(pages().values())
    documented = set(re.findall(r"`([a-z_]+(?:\.[a-z_]+)*)`", text))
    assert setting_names(Settings) - documented == set()
    defaults = {"kafka.session_timeout_ms": "10000", "batching.max_events": "4096", "input.max_event_bytes": "1000000"}
    for name, default in defaults.items():
        assert re.search(rf"`{name}` \| {default} ", text), name
    for reason in Reason:
        assert f"`{reason.value}`" in text, reason


def test_the_readmes_signature_and_golden_example_fit_each_other() -> None:
    signature = Signature.parse(block("signature"))
    example = json.loads(block("golden"))
    assert {field.name for field in signature.fields} == set(example["event"])
    assert set(example) == {"event", "score", "tolerance"}


def test_the_readmes_configuration_names_only_settings_that_exist() -> None:
    settings = yaml.safe_load(block("configuration"))
    assert Settings.model_validate(settings).dead_letter.topic == "flights.dead"
