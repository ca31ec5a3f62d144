"""The lease of a model on a real broker: of two processes in two folders one trains, and a killed one leaves the lease."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from publisher.errors import REFUSED, USAGE, Fatal
from scorer.settings import Settings
from tests.support import models
from tests.support.environment import ROOT, TRAIN
from tests.support.fixtures import MakeTopics
from tests.support.shared_broker import Broker
from tests.support.waiting import until
from training.pipeline.model_lease import MEMBERS, held
from training.settings import load

HOLDS = "held"
HOLDER = f"""
import sys
from pathlib import Path
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "deploy")!r}]
from training.pipeline.model_lease import held
from training.settings import load
training, settings = load(Path("training.yaml"))
training.folder.mkdir(exist_ok=True)
with held(settings, training.folder) as check:
    print({HOLDS!r}, flush=True)
    while sys.stdin.readline():
        check()
        print({HOLDS!r}, flush=True)
"""
SHORT_SECONDS, LONG_SECONDS = 6, 1_200
"""Sessions that a broker accepts: a test can wait for the end of the first, and never for that of the second."""


class Machine:
    """A folder with a configuration of the same model, as another machine has it."""

    def __init__(self, folder: Path, servers: str, unique: str, session_seconds: int) -> None:
        folder.mkdir()
        self.folder = folder
        scorer = {
            "name": unique,
            "kafka": {
                "bootstrap_servers": servers,
                "session_timeout_ms": session_seconds * 1_000,
                "extra": {"max.poll.interval.ms": LONG_SECONDS * 1_000},  # librdkafka: never less than the session
            },
            "input": {"topics": [f"{unique}.events"], "id": "id"},
            "output": {"topic": f"{unique}.scores"},
            "model": {"source": "oci:./registry/model"},
            "labels": {"topic": f"{unique}.labels", "classes": ["low", "high"]},
        }
        training = {"scorer": "scorer.yaml", "signature": "package/signature.json", "publish": {"key_file": "training.key"}}
        (folder / "scorer.yaml").write_text(yaml.safe_dump(scorer))
        (folder / "training.yaml").write_text(yaml.safe_dump(training))

    def start(self) -> "subprocess.Popen[str]":
        """Start a process that waits for the lease, prints HOLDS, and ends with its standard input."""
        return subprocess.Popen(
            [sys.executable, "-c", HOLDER], cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        models.linear_package(self.folder / "package", 2.0)
        subprocess.run([sys.executable, "-m", "model_registry", "keygen", "training"], cwd=self.folder, check=True)
        command = [*TRAIN, "run", "training.yaml", *options]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False, timeout=120)

    def hold(self) -> None:
        """Hold the lease once. Raises Fatal."""
        training, settings = load(self.folder / "training.yaml")
        training.folder.mkdir(exist_ok=True)
        with held(settings, training.folder) as check:
            check()

    def members(self) -> list[str]:
        """The member ids that are stored beside the runs, oldest first."""
        return (self.folder / "runs" / MEMBERS).read_text().splitlines()


@pytest.fixture
def session_seconds() -> int:
    return SHORT_SECONDS


@pytest.fixture
def machines(
    broker: Broker, make_topics: MakeTopics, unique: str, tmp_path: Path, session_seconds: int
) -> tuple[Machine, Machine]:
    make_topics("events", "labels", "scores", partitions=3)
    first, second = (Machine(tmp_path / name, broker.bootstrap_servers, unique, session_seconds) for name in ("a", "b"))
    return first, second


@pytest.fixture
def holder(machines: tuple[Machine, Machine]) -> Iterator["subprocess.Popen[str]"]:
    """A process on the first machine that holds the lease."""
    with machines[0].start() as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{HOLDS}\n"
        yield process
        process.kill()


def settings_of(machine: Machine) -> Settings:
    return load(machine.folder / "training.yaml")[1]


def test_a_second_run_of_the_model_is_refused_and_names_the_first(
    machines: tuple[Machine, Machine], holder: "subprocess.Popen[str]"
) -> None:
    name = settings_of(machines[1]).name
    completed = machines[1].run()
    assert completed.returncode == REFUSED, completed.stderr
    failure = json.loads(completed.stderr.splitlines()[-1])
    assert f"another run trains the model of {name}: client id '{name[:60]}" in failure["message"]
    assert "on host 127.0.0.1" in failure["message"]
    assert failure["hint"] == "wait until that run ends"
    (steps,) = (machines[1].folder / "runs").glob("*/steps")
    assert [path.name for path in steps.iterdir()] == ["plan.json"], "no snapshot is frozen that a later run would use"
    assert holder.stdin is not None
    assert holder.stdout is not None
    holder.stdin.write("\n")
    holder.stdin.flush()
    assert holder.stdout.readline() == f"{HOLDS}\n", "the first run goes on"


def test_the_lease_of_a_killed_run_ends_by_itself(machines: tuple[Machine, Machine], holder: "subprocess.Popen[str]") -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    machines[1].hold()


@pytest.mark.parametrize("session_seconds", [LONG_SECONDS])
def test_the_next_run_in_the_folder_of_killed_ones_does_not_wait_for_their_sessions(
    machines: tuple[Machine, Machine], holder: "subprocess.Popen[str]"
) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    for _ in range(2):
        with machines[0].start() as again:
            assert again.stdout is not None
            assert again.stdout.readline() == f"{HOLDS}\n"
            again.kill()
    machines[0].hold()
    assert len(set(machines[0].members())) == 4, "each process was a member of its own"


@pytest.mark.parametrize("session_seconds", [LONG_SECONDS])
def test_a_run_that_ends_releases_the_lease_at_once(machines: tuple[Machine, Machine], holder: "subprocess.Popen[str]") -> None:
    assert holder.stdin is not None
    holder.stdin.close()
    assert holder.wait() == 0
    machines[1].hold()


def test_of_two_that_start_at_once_one_holds_the_lease(machines: tuple[Machine, Machine]) -> None:
    with machines[0].start() as first, machines[1].start() as second:
        processes = (first, second)
        until(lambda: any(process.poll() is not None for process in processes), "the end of one")
        (ended,) = (process for process in processes if process.poll() is not None)
        (other,) = (process for process in processes if process is not ended)
        assert ended.returncode == 1, "refused, by an exception"
        assert other.stdout is not None
        assert other.stdout.readline() == f"{HOLDS}\n"
        other.kill()


def test_a_suspended_run_notices_that_another_has_taken_its_lease(
    machines: tuple[Machine, Machine], holder: "subprocess.Popen[str]"
) -> None:
    holder.send_signal(signal.SIGSTOP)
    with machines[1].start() as taker:
        assert taker.stdout is not None
        assert taker.stdout.readline() == f"{HOLDS}\n"
        holder.send_signal(signal.SIGCONT)
        assert holder.stdin is not None
        stdin = holder.stdin

        def ended() -> bool:
            if holder.poll() is None:
                stdin.write("\n")
                stdin.flush()
            return holder.poll() is not None

        until(ended, "the end of the suspended run", every=0.5)
        taker.kill()
    assert holder.returncode == 1


def test_a_missing_topic_of_labels_is_named(machines: tuple[Machine, Machine], tmp_path: Path) -> None:
    _, settings = load(machines[0].folder / "training.yaml")
    absent = settings.model_copy(update={"labels": settings.labels.model_copy(update={"topic": "no.such.topic"})})
    with pytest.raises(Fatal, match=r"no\.such\.topic") as raised, held(absent, tmp_path):
        pass
    assert raised.value.exit_code == USAGE
