"""Networks trained by several processes: how many, and which of them are killed, does not change the model."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from torch.distributed import TCPStore

from model_registry import atomic_files
from publisher.errors import UNREACHABLE, USAGE
from tests.network.fit import digest
from tests.support.environment import ROOT
from tests.support.processes import alive, free_port
from tests.support.waiting import STEP_SECONDS, until
from training.recipes.network.job_files import LOCK

EPOCHS = 20
AGENT, WORKER = "training.recipes.network.torchrun_agent", "training.recipes.network.torchrun_worker"
OFTEN = 0.01
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "deploy")]), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the digest of one undisturbed process."""
    return digest(tmp_path_factory.mktemp("alone"), EPOCHS, 1)


def started(folder: Path, workers: int = 2) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.network.fit", str(folder), str(EPOCHS), str(workers)]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: "subprocess.Popen[str]") -> str:
    """What a training that succeeds has printed: the digest."""
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    return out.strip()


def below(process: "subprocess.Popen[str]") -> dict[str, psutil.Process]:
    """The agent and the workers of a training in its midst: `agent`, `0` and `1`."""
    children = {}
    for child in psutil.Process(process.pid).children(recursive=True):
        line = child.cmdline()
        if AGENT in line:
            children["agent"] = child
        elif WORKER in line:
            children[child.environ()["RANK"]] = child
    return children


def amid(folder: Path) -> bool:
    """Whether some epochs are done."""
    return any(path.stem.isdecimal() and int(path.stem) >= 3 for path in folder.glob("*.npz"))


@pytest.mark.parametrize("workers", [3, 4])  # of three, two are used
def test_the_number_of_processes_leaves_no_trace(tmp_path: Path, expected: str, workers: int) -> None:
    assert digest(tmp_path, EPOCHS, workers) == expected


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_killed_worker_is_restarted_at_the_last_checkpoint(tmp_path: Path, expected: str, rank: str) -> None:
    training = started(tmp_path)
    until(lambda: amid(tmp_path), "the third epoch", every=OFTEN)
    below(training)[rank].kill()
    assert not (tmp_path / f"{EPOCHS}.npz").exists(), "the training was over before the kill"
    assert ended(training) == expected


@pytest.mark.parametrize("victim", ["agent", "all"])
def test_training_continues_after_a_kill_and_no_worker_outlives_it(tmp_path: Path, expected: str, victim: str) -> None:
    training = started(tmp_path)
    until(lambda: amid(tmp_path), "the third epoch", every=OFTEN)
    before = below(training)
    assert set(before) == {"agent", "0", "1"}
    (before["agent"] if victim == "agent" else psutil.Process(training.pid)).kill()
    _, errors = training.communicate()
    if victim == "agent":
        assert training.returncode == UNREACHABLE
        assert "was ended by SIGKILL" in errors
        assert "run again" in errors
    until(lambda: not any(alive(process.pid) for process in before.values()), "the end of what was started")
    assert not (tmp_path / f"{EPOCHS}.npz").exists(), "the training was over before the kill"
    assert ended(started(tmp_path)) == expected


def test_two_trainings_in_one_folder_run_one_after_the_other(tmp_path: Path, expected: str) -> None:
    both = [started(tmp_path), started(tmp_path)]
    assert [ended(training) for training in both] == [expected, expected]
    with atomic_files.try_lock(tmp_path / LOCK) as free:
        assert free


def test_torchrun_on_several_nodes_gives_the_same(tmp_path: Path, expected: str) -> None:
    """Two agents, as on two nodes, go on from an epoch that was trained here."""
    digest(tmp_path, 1, 2)
    port = str(free_port())
    nodes = []
    for rank in ("0", "1"):
        where = ("--nnodes=2", f"--node-rank={rank}", "--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={port}")
        command = [sys.executable, "-m", "torch.distributed.run", *where, "-m", WORKER, str(tmp_path), str(EPOCHS)]
        nodes.append(subprocess.Popen(command, env=ENVIRONMENT))
    assert [node.wait() for node in nodes] == [0, 0]
    before = (tmp_path / f"{EPOCHS}.npz").stat().st_mtime_ns
    assert digest(tmp_path, EPOCHS, 2) == expected
    assert (tmp_path / f"{EPOCHS}.npz").stat().st_mtime_ns == before


def test_addresses_of_killed_processes_are_not_waited_for(tmp_path: Path) -> None:
    """The second start of torchrun has the store of the first: rank 0 comes while that still names the old rank 1."""
    digest(tmp_path, 1, 2)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    where = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "WORLD_SIZE": "2",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }

    def worker(rank: int, restarts: int) -> "subprocess.Popen[bytes]":
        environment = ENVIRONMENT | where | {"RANK": str(rank), "TORCHELASTIC_RESTART_COUNT": str(restarts)}
        return subprocess.Popen([sys.executable, "-m", WORKER, str(tmp_path), str(2 + restarts)], env=environment)

    first = [worker(rank, 0) for rank in (0, 1)]
    assert [process.wait() for process in first] == [0, 0]
    key_count = store.num_keys()
    second = [worker(0, 1)]
    until(lambda: store.num_keys() > key_count, "rank 0", every=OFTEN)
    second.append(worker(1, 1))
    try:
        assert [process.wait(STEP_SECONDS) for process in second] == [0, 0]
    finally:
        for process in second:
            process.kill()
    assert (tmp_path / "3.npz").exists()


def test_three_processes_from_outside_are_refused(tmp_path: Path) -> None:
    environment = {**ENVIRONMENT, "RANK": "0", "WORLD_SIZE": "3"}
    command = [sys.executable, "-m", WORKER, str(tmp_path), "1"]
    completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert completed.returncode == USAGE
    assert "3 processes cannot share a batch" in completed.stderr
