"""What the README says, done: its commands, its configuration, its producer and its consumer."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from model_registry.signature import Signature
from scorer.demo import flights
from scorer.demo.broker import EmbeddedBroker
from scorer.events.contract import Reason
from scorer.settings import Settings
from tests.e2e.rig import command, until
from tests.every_setting import setting_names

README = (Path(__file__).parents[2] / "README.md").read_text()
PORT = "127.0.0.1:9092"


def blocks(language: str) -> list[str]:
    """The code blocks of one language."""
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.S)


def line_of(beginning: str) -> str:
    """The first line of a shell block that begins so."""
    return next(line for block in blocks("sh") for line in block.splitlines() if line.startswith(beginning))


class Reader:
    """A newcomer in an empty folder with the two packages; the README's address and topic names are exchanged for ours."""

    def __init__(self, folder: Path, servers: str, name: str) -> None:
        self.folder, self.servers, self.name = folder, servers, name
        for version in ("1.0.0", "2.0.0"):
            shutil.copytree(flights.DATA / f"flight-delay-{version}", folder / f"flight-delay-{version}")
        self.path = folder / "scorer.yaml"
        self.path.write_text(self.ours(blocks("yaml")[0]))

    def ours(self, text: str) -> str:
        """The text with our broker and our topics."""
        text = (
            text.replace(PORT, self.servers)
            .replace('"my-app"', f'"{self.name}.app"')
            .replace("flights", f"{self.name}.flights")
        )
        return text.replace("name: flight-delay", f"name: {self.name}")

    def shell(self, line: str, *, code: int = 0) -> str:
        """A line of a shell block; its stdout."""
        done = subprocess.run(
            ["bash", "-c", self.ours(line)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(self.folder)},
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def python(self, block: str) -> str:
        """A python block; its stdout."""
        done = subprocess.run(
            [sys.executable, "-c", self.ours(block)], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def reader(tmp_path: Path, broker: EmbeddedBroker, unique: str) -> Reader:
    """See the class."""
    return Reader(tmp_path, broker.bootstrap_servers, unique)


def test_the_readmes_commands_producer_and_consumer_work(reader: Reader) -> None:
    lines = [line.partition("#")[0].strip() for line in blocks("sh")[2].splitlines()]
    push, promote, check, run, swap, status = lines
    reader.shell(push)
    reader.shell(push.replace("1.0.0", "2.0.0"))
    reader.shell(promote)
    reader.shell(check)
    assert run == "scorer run scorer.yaml"
    scorer = subprocess.Popen([command("scorer"), "run", str(reader.path), "--set", "http.listen=127.0.0.1:0"])
    try:
        produce, consume = blocks("python")
        reader.python(produce)
        identity = "2013-09-01-UA-1545-EWR-0516"
        answer = reader.python(consume)
        assert answer.split()[0] == identity
        assert answer.split()[2] == "1.0.0"
        reader.shell(swap)
        until(
            lambda: (
                {"2.0.0"}
                == {s["versions"]["champion"]["version"] for s in json.loads(reader.shell(status + " --json"))["scorers"]}
            ),
            "2.0.0",
        )
        (reader.folder / "events.jsonl").write_bytes(b"\n".join(flights.lines(50)))
        emit = next(part for part in re.findall(r"`(scorer emit [^`]+)`", README))
        reader.shell(emit)
        tail = line_of("scorer tail scorer.yaml --from-beginning")
        records = [json.loads(line) for line in reader.shell(tail + " --events 51").splitlines()]
        assert [record["version"] for record in records].count("2.0.0") == 50
        assert set(records[0]) == set(json.loads(blocks("json")[0]))
    finally:
        scorer.terminate()
        assert scorer.wait(60) == 0


@pytest.mark.debian("kcat")
def test_kcat_reads_what_the_readme_says(reader: Reader) -> None:
    line = line_of("kcat -C")
    reader.shell("model-registry push ./flight-delay-1.0.0 oci:./registry/flight-delay:1.0.0")
    reader.shell("model-registry promote oci:./registry/flight-delay --to 1.0.0")
    reader.shell("scorer check scorer.yaml --create")
    (reader.folder / "event").write_bytes(b"UA-1545|" + next(flights.lines(1)) + b"\n")
    write = next(part for part in re.findall(r"`(kcat -P [^`]+)`", README))
    reader.shell(f"{write} < event")
    with (reader.folder / "log").open("wb") as log:
        scorer = subprocess.Popen([command("scorer"), "run", str(reader.path), "--set", "http.listen=127.0.0.1:0"], stderr=log)
    try:
        reader.shell("scorer tail scorer.yaml --from-beginning --events 1")
        record = json.loads(reader.shell(f"{line} -o beginning -e -q"))
        assert record["status"] == "scored"
    finally:
        scorer.terminate()
        assert scorer.wait(60) == 0


def test_every_setting_and_every_reason_stands_in_the_readme() -> None:
    documented = set(re.findall(r"`([a-z_]+(?:\.[a-z_]+)*)`", README))
    assert setting_names(Settings) - documented == set()
    defaults = {"kafka.session_timeout_ms": "10000", "batching.max_events": "4096", "input.max_event_bytes": "1000000"}
    for name, default in defaults.items():
        assert re.search(rf"`{name}` \| {default} ", README), name
    for reason in Reason:
        assert f"`{reason.value}`" in README, reason


def test_the_readmes_signature_and_golden_example_fit_each_other() -> None:
    signature = Signature.parse(blocks("json")[1])
    example = json.loads(blocks("json")[2])
    assert {field.name for field in signature.fields} == set(example["event"])
    assert set(example) == {"event", "score", "tolerance"}


def test_the_readmes_configuration_names_only_settings_that_exist() -> None:
    settings = yaml.safe_load(blocks("yaml")[0])
    assert Settings.model_validate(settings).dead_letter.topic == "flights.dead"
