"""The embedded broker is a real one, survives being killed, and ends with its owner."""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import given
from hypothesis import strategies as st

from scorer.demo.broker.embedded import EmbeddedBroker
from scorer.demo.broker.jars import BrokerUnavailable
from scorer.demo.broker.kraft_config import cluster_id, free_ports, is_port_in_use
from scorer.demo.broker.orphan_reaper import run_reaper
from tests.support import auditor
from tests.support.processes import alive

TOPIC = "events"
QUICK_RETURN = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
"""A node that restarts after a kill -9 waits until its old session expires: 9 s by default."""


def write(broker: EmbeddedBroker, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "house"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(TOPIC, value)
    producer.commit_transaction(30)


def test_transactions_survive_a_kill_and_stop_removes_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "kafka"
    with EmbeddedBroker(folder, QUICK_RETURN) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
        write(broker, b"before")
        address, first = broker.bootstrap_servers, broker.pid
        broker.kill()
        with pytest.raises(RuntimeError, match="not running"):
            _ = broker.pid
        broker.restart()
        assert broker.bootstrap_servers == address
        assert broker.pid != first
        write(broker, b"after")
        assert [record.value() for record in auditor.read(address, TOPIC)] == [b"before", b"after"]
        broker.pause()
        while psutil.Process(broker.pid).status() != psutil.STATUS_STOPPED:  # before that it may still answer
            time.sleep(0.01)
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=0.5)
        broker.resume()
        assert TOPIC in admin.list_topics(timeout=30).topics
        pid = broker.pid
    assert not folder.exists()
    assert not alive(pid)


OWNER = """
import sys
from pathlib import Path
from scorer.demo.broker.embedded import EmbeddedBroker
broker = EmbeddedBroker(Path(sys.argv[1])).start()
print(broker.pid, flush=True)
if sys.argv[2] == "detach":
    broker.detach()
else:
    sys.stdin.read()
"""


def test_the_broker_ends_with_an_owner_that_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "kafka"
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(folder), "hold"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    broker = os.pidfd_open(pid)
    owner.kill()
    owner.communicate()
    assert select.select([broker], [], [], 30)[0], "the broker outlived its owner"
    os.close(broker)
    assert not alive(pid)


@pytest.mark.parametrize("last", [[], ["release\n"]])
def test_the_reaper_kills_and_removes_unless_it_was_released(tmp_path: Path, last: list[str]) -> None:
    folder = tmp_path / "kafka"
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as guarded:
        run_reaper([f"watch {guarded.pid}\n", *last], folder)
        assert folder.exists() == bool(last)
    assert guarded.returncode == (0 if last else -signal.SIGKILL)


def test_a_detached_broker_runs_until_it_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "kafka"
    output = subprocess.run([sys.executable, "-c", OWNER, str(folder), "detach"], stdout=subprocess.PIPE, check=True).stdout
    broker = os.pidfd_open(int(output))
    try:
        assert alive(int(output))
        assert (folder / "server.properties").is_file()
    finally:
        signal.pidfd_send_signal(broker, signal.SIGKILL)
        assert select.select([broker], [], [], 30)[0]
        os.close(broker)


def test_a_wrong_property_ends_in_one_line_without_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "kafka"
    with pytest.raises(BrokerUnavailable, match=r"num\.io\.threads") as caught:
        EmbeddedBroker(folder, {"num.io.threads": "none"}).start()
    assert "\n" not in str(caught.value)
    assert not folder.exists()


def test_a_folder_in_use_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    with pytest.raises(ValueError, match="is not empty"):
        EmbeddedBroker(tmp_path).start()
    assert (tmp_path / "precious").read_text() == "x"


def test_ports_are_free_different_and_outside_the_range_for_clients() -> None:
    low, _ = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    first, second = free_ports()
    assert first != second
    assert max(first, second) < low
    assert not is_port_in_use(first)


@given(st.binary(min_size=16, max_size=16))
def test_a_cluster_id_is_no_option_of_a_command(random_bytes: bytes) -> None:
    identifier = cluster_id(random_bytes)
    assert len(identifier) == 22
    assert identifier[0] != "-"
