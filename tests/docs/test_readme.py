"""The instructions of the pages: commands, configurations, producer and consumer, your own model. Named blocks run unchanged,
except that addresses and the names of topics, group and repository are exchanged for those of the test."""

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import trustme

from scorer.demo import flights
from tests.docs import pages, tutorial
from tests.integration.registry.server import DockerRegistry, Tls, running
from tests.integration.scorer.rig import until
from tests.support import warm
from tests.support.environment import ROOT
from tests.support.processes import command
from tests.support.shared_broker import Broker

README = "README.md"
PRODUCE, READ, PERFORMANCE = (f"scorer/docs/{name}.md" for name in ("produce-events", "read-scores", "performance"))
ROLLOUTS, PLANS = "scorer/docs/rollouts.md", "scorer/docs/rollout-plans.md"
SIGNATURE, CHANNELS = "model_registry/docs/signature.md", "model_registry/docs/channels.md"
KAFKA, REGISTRY = "127.0.0.1:9092", "registry.example.com"
RUN = "scorer run scorer.yaml"
IDENTITY = "2013-09-01-UA-1545-EWR-0516"
ACTIVATE = ". .venv/bin/activate"


def lines(page: str, name: str) -> list[str]:
    return [line for line in pages.lines(page, name) if line != ACTIVATE]


def line_of(page: str, name: str, beginning: str) -> str:
    """Return the first line of a named block with this beginning."""
    return next(line for line in lines(page, name) if line.startswith(beginning))


class Reader:
    """A newcomer in a checkout of the sources, whose `scorer.yaml` is the README's. `close` ends its processes."""

    def __init__(self, folder: Path, servers: str, name: str) -> None:
        self.folder, self.name = folder, name
        self._ours = {KAFKA: servers, '"my-app"': f'"{name}.app"', "name: flight-delay": f"name: {name}"}
        self._ours |= {"team/flight-delay": f"team/{name}"}
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(folder),
            "SCORER_HTTP__LISTEN": "127.0.0.1:0",
            "SCORER_SHADOW__LISTEN": "127.0.0.1:0",
            "SCORER_ROLLOUT__LISTEN": "127.0.0.1:0",
        }
        self._running: list[Terminal] = []
        (folder / "scorer").symlink_to(ROOT / "scorer")
        (folder / "scorer.yaml").write_text(self.ours(pages.blocks(README)["configuration"]))

    def exchange(self, theirs: str, ours: str) -> None:
        self._ours[theirs] = ours

    def ours(self, text: str) -> str:
        for theirs, ours in self._ours.items():
            text = text.replace(theirs, ours)
        return re.sub(r"(?<![\w/.-])flights(?![\w-])", f"{self.name}.flights", text)

    def shell(self, line: str, *, code: int | None = 0) -> str:
        completed = subprocess.run(
            ["bash", "-c", self.ours(line)], cwd=self.folder, capture_output=True, text=True, check=False, env=self.environment
        )
        assert code in (None, completed.returncode), f"{self.ours(line)}: {completed.stdout}{completed.stderr}"
        return completed.stdout

    def forked(self, line: str, *, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run a command without a shell, forked (`tests/support/warm.py`): a new process takes 0.6 s of CPU time more.

        Use it for polls, and for lines that another test types into a shell.
        """
        program, *arguments = shlex.split(self.ours(line))
        completed = warm.run([command(program), *arguments], self.folder, environment=self.environment)
        result = subprocess.CompletedProcess(
            completed.args, completed.returncode, completed.stdout.decode(), completed.stderr.decode()
        )
        assert code in (None, result.returncode), result
        return result

    def start(self, line: str) -> "Terminal":
        self._running.append(Terminal(self.ours(line), self.folder, self.environment))
        return self._running[-1]

    def quickstart(self) -> "Terminal":
        """Run the README's quickstart; its last command does not end. The commands before it are forked."""
        *before, last = lines(README, "quickstart")
        assert last == RUN
        for line in before:
            if line.split()[0] in warm.PROGRAMS:
                self.forked(line)
            else:
                self.shell(line)
        return self.start(last)

    def python(self, block: str) -> str:
        completed = subprocess.run(
            [sys.executable, "-c", self.ours(block)], capture_output=True, text=True, check=False, timeout=120
        )
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    def close(self) -> None:
        for terminal in self._running:
            terminal.close()


class Terminal:
    """A pseudo terminal for one command: programs buffer their lines if they write into a pipe."""

    def __init__(self, line: str, folder: Path, environment: dict[str, str]) -> None:
        ours, theirs = pty.openpty()
        command, self.talk = ["bash", "-c", f"exec {line}"], folder / f"{ours}.talk"
        with self.talk.open("wb") as talk:
            self.process = subprocess.Popen(command, cwd=folder, env=environment, stdout=theirs, stderr=talk)
        os.close(theirs)
        self.shown = os.fdopen(ours)

    def lines(self, count: int) -> list[str]:
        return [self.shown.readline() for _ in range(count)]

    def close(self) -> int:
        self.process.terminate()
        self.shown.close()
        return self.process.wait(60)


@pytest.fixture
def reader(tmp_path: Path, broker: Broker, unique: str) -> Iterator[Reader]:
    newcomer = Reader(tmp_path, broker.bootstrap_servers, unique)
    yield newcomer
    newcomer.close()


def workers_serve(reader: Reader, version: str) -> bool:
    """Whether every worker serves the version, by `scorer status`."""
    rows = [line.split() for line in reader.forked(line_of(README, "moves", "scorer status")).stdout.splitlines()[2:]]
    return [row[-1] for row in rows if row and row[0] != "total"] == [version] * len(os.sched_getaffinity(0))


def test_the_quickstart_the_producer_and_the_consumer_work(reader: Reader) -> None:
    *before, last = lines(README, "quickstart")
    for line in before:
        reader.shell(line)
    scorer = reader.start(last)
    until(lambda: workers_serve(reader, "1.0.0"), "1.0.0")
    reader.python(pages.blocks(PRODUCE)["produce"])
    identity, _, version = reader.python(pages.blocks(READ)["consume"]).split()
    assert (identity, version) == (IDENTITY, "1.0.0")
    reader.shell("model-registry promote oci:./registry/flight-delay --to 2.0.0")
    until(lambda: workers_serve(reader, "2.0.0"), "2.0.0")
    (reader.folder / "events.jsonl").write_bytes(b"\n".join(islice(flights.lines(), 50)))
    reader.shell(line_of(PRODUCE, "emit", "scorer emit"))
    records = [json.loads(line) for line in reader.start(line_of(READ, "tail", "scorer tail")).lines(51)]
    assert [record["version"] for record in records].count("2.0.0") == 50
    assert set(records[0]) == set(json.loads(pages.blocks(READ)["score"]))
    assert scorer.close() == 0


def test_the_second_terminal_of_the_quickstart_moves_versions(reader: Reader) -> None:
    reader.quickstart()
    outputs = [reader.shell(line) for line in lines(README, "moves")]
    assert [json.loads(line)["status"] for line in outputs[-2].splitlines()]
    assert workers_serve(reader, "1.0.0")


def test_a_rollout_runs_as_on_the_page(reader: Reader) -> None:
    reader.quickstart()
    until(lambda: workers_serve(reader, "1.0.0"), "1.0.0")
    emit = line_of(PRODUCE, "emit", "scorer emit")
    (reader.folder / "events.jsonl").write_bytes(b"\n".join(islice(flights.lines(), 400)))
    reader.shell(emit)
    compare, name, run, judge, *moves, lineage, rollback = lines(ROLLOUTS, "rollout")
    reader.shell(compare, code=None)  # the model decides whether it passes
    reader.shell(name)
    shadow = reader.start(run)
    until(lambda: "2.0.0" in reader.forked("scorer status scorer.yaml --json").stdout, "the candidate in the shadow")
    until(lambda: "assigned: " in shadow.talk.read_text(), "its partitions")
    reader.shell(emit)
    until(lambda: "pairs, 3,000 are required" in reader.forked(judge, code=1).stderr, "pairs, which are too few")
    reader.shell(judge, code=1)
    for line in moves:
        reader.shell(line)
    until(lambda: '"score"' in reader.forked(f"{lineage} --json", code=None).stdout, "the first event's answer")
    reader.shell(lineage)
    reader.shell(rollback)


def test_a_plan_runs_as_on_the_page(reader: Reader) -> None:
    reader.quickstart()
    until(lambda: workers_serve(reader, "1.0.0"), "1.0.0")
    (reader.folder / "events.jsonl").write_bytes(b"\n".join(islice(flights.lines(), 400)))
    reader.shell(line_of(PRODUCE, "emit", "scorer emit"))
    plan = pages.blocks(PLANS)["plan"].replace("cost: 3x", "cost: 1000x").replace("psi: 0.2", "psi: 9")  # of few events
    plan = plan.replace(", brier: {margin: 0.005, within: 48h}", "")  # there are no labels
    (reader.folder / "plan.yaml").write_text(plan)
    run, start, status, *asks, abort, verify = lines(PLANS, "controller")
    controller = reader.start(run)
    reader.shell(start)
    until(
        lambda: "shadow 20 %" in reader.forked(status).stdout and "moved" in reader.forked(f"{status} --json").stdout,
        "the shadow",
    )
    for line in asks:
        reader.shell(line)
    until(
        lambda: reader.forked(f"{status} --json").stdout.count('"moved"') == 2, "the canary, after the decision of an operator"
    )
    reader.shell(abort)
    until(lambda: "aborted" in reader.forked(status).stdout, "its end")
    assert "aborted" in reader.shell(status)
    assert "the same" in reader.shell(verify)
    assert controller.close() == 0


@pytest.mark.debian("kcat")
def test_kcat_writes_and_reads_the_records_of_the_page(reader: Reader) -> None:
    reader.quickstart()
    (reader.folder / "event").write_bytes(b"UA-1545|" + next(flights.lines()) + b"\n")
    reader.shell(f"{line_of(PRODUCE, 'emit', 'kcat -P')} < event")
    (record,) = reader.start(line_of(READ, "tail", "kcat -C")).lines(1)
    assert json.loads(record)["status"] == "scored"


def test_versions_report_their_schemas_and_incompatible_changes_to_producers(reader: Reader) -> None:
    for line in lines(README, "quickstart")[:-2]:
        reader.shell(line)
    schema, broken = lines(PRODUCE, "contract")
    assert "flight_id" in reader.shell(schema)
    reader.shell(broken, code=1)
    for line in lines(PERFORMANCE, "bench"):
        reader.shell(line)
    reader.shell(*lines(SIGNATURE, "push"))


def test_your_own_model_is_served(reader: Reader, unique: str) -> None:
    tutorial.follow(reader.folder, "scikit-learn")
    configuration = reader.ours(pages.blocks(tutorial.PAGE)["fraud-configuration"])
    exchanged = configuration.replace("orders", f"{unique}.orders").replace("name: fraud", f"name: {unique}")
    (reader.folder / "fraud.yaml").write_text(exchanged)
    check, run = lines(tutorial.PAGE, "serve")
    reader.shell(check)
    reader.start(run)
    emit, tail = lines(tutorial.PAGE, "score")
    reader.shell(emit)
    records = [json.loads(line) for line in reader.start(tail).lines(3)]
    assert {record["model"] for record in records} == {"fraud"}
    assert {record["decision"] for record in records} <= {"review", "accept"}


@pytest.fixture
def secure_registry(tmp_path: Path) -> Iterator[tuple[DockerRegistry, Path]]:
    """A registry behind TLS, as all registries except those on loopback are, and the authority to trust."""
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
    data = "scorer/demo/data/flight-delay"
    reader.shell(f"cp -r {data}-1.0.0 flight-delay-1.3.0; cp -r {data}-2.0.0 flight-delay-1.4.0")
    reader.shell(f"model-registry push ./flight-delay-1.3.0 {source}:1.3.0 && model-registry promote {source} --to 1.3.0")
    reader.shell("scorer check scorer.yaml --create")
    reader.start(RUN)
    typed = lines(CHANNELS, "registry")
    watch = reader.start(next(line for line in typed if " watch " in line))
    until(lambda: "after revision 1" in watch.talk.read_text(), "watch to begin: it shows later moves only")
    outputs = {line.split()[1]: reader.shell(line) for line in typed if " watch " not in line}
    assert list(outputs) == ["push", "inspect", "promote", "rollback", "status", "prune"]
    assert "~ model.onnx" in outputs["inspect"]
    assert "1.3.0 -> 1.4.0 (revision 2)" in outputs["promote"]
    assert "1.4.0 -> 1.3.0 (revision 3, back to revision 1)" in outputs["rollback"]
    assert "calibration" in outputs["status"]
    assert [json.loads(line)["revision"] for line in watch.lines(2)] == [2, 3]
