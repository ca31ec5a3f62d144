"""What people and Prometheus see of a relay, and every setting on the real clusters."""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

import yaml

from publisher.kafka.security import SecuritySettings
from publisher.relay.settings import RelaySettings
from publisher.runtime.configuration import flatten
from tests.integration.relay.rig import MakeRelay, RelayRig
from tests.support import warm
from tests.support.every_setting import setting_names
from tests.support.processes import Service, command
from tests.support.waiting import STEP_SECONDS, until

METRICS = (
    "publisher_records_total",
    "publisher_bytes_total",
    "publisher_records_filtered_total",
    "publisher_records_looped_total",
    "publisher_relay_info",
    "publisher_transactions_total",
    "publisher_aborts_total",
    "publisher_producer_rotations_total",
    "publisher_commit_seconds_total",
    "publisher_lag_records",
    "publisher_lag_seconds",
    "publisher_checkpoint_age_seconds",
    "publisher_source_silence_seconds",
    "publisher_restarts_total",
    "publisher_copying",
    "publisher_source_retention_seconds",
    "publisher_records_refused_total",
    "publisher_records_derived_total",
)


def test_metrics_health_and_status_report_the_progress(make_relay: MakeRelay) -> None:
    rig = make_relay(lanes=2)
    rig.create(rig.source)
    rig.fill(400)
    relay = rig.start("transaction_records=50").ready()
    rig.wait_copied(400)
    assert relay.metric("publisher_records_total") == 400
    text = relay.get("/metrics")[1]
    assert [name for name in METRICS if name not in text] == []
    until(lambda: relay.metric("publisher_lag_records") == 0, "no lag")
    assert relay.get("/livez")[0] == 200
    live_status_reports_progress(rig, relay)
    assert relay.stop() == 0
    assert "all copied records are committed" in relay.said
    rig.fill(40)
    status = rig.json("status")
    assert status["last"]["what"] == "publisher run"
    assert [row["lag_records"] for row in status["partitions"]] == [10, 10, 10, 10]
    assert all(row["lag_seconds"] > 0 for row in status["partitions"])
    assert "lag" in rig.run("status").stdout
    assert len(rig.json("checkpoint", "show")["partitions"]) == 4
    rig.configure(source={"bootstrap_servers": "127.0.0.1:1"})
    dark = rig.json("status")
    assert dark["source_answers"] is False
    assert {row["lag_records"] for row in dark["partitions"]} == {None}
    assert not rig.json("check", code=1)["ok"]
    rig.configure(destination={"bootstrap_servers": "127.0.0.1:1"})
    assert "no Kafka broker answers" in rig.run("status", code=4).stderr


def live_status_reports_progress(rig: RelayRig, relay: Service) -> None:
    """While 2,000 records more are copied, as JSON and in a terminal."""
    status_command = [*rig.program, "status", str(rig.path), "--metrics", relay.endpoint, "--live", "--every", "0.2"]
    with subprocess.Popen([*status_command, "--json"], stdout=subprocess.PIPE) as live:
        assert live.stdout is not None
        looks = (json.loads(line) for line in live.stdout)
        assert next(looks)["process"]["lanes"][0]["records_per_second"] is None
        rig.fill(2_000)
        moved = next(look for look in looks if any(lane["records_per_second"] for lane in look["process"]["lanes"]))
        snapshot = next(look for look in looks if all_is_copied(look["process"]["lanes"], rig.written))
        live.terminate()
    assert moved["process"]["copying"]
    assert [lane["aborts"] for lane in snapshot["process"]["lanes"]] == [0, 0]
    assert snapshot["process"]["last_error"] is None
    see_in_a_terminal(status_command, "copying", "trans-", "aborts", "s ago", f"{rig.topic}[3]", f"{rig.written // 2:,}")
    assert "not a terminal" in rig.run("status", "--live", code=2).stderr
    assert rig.json("status")["process"] is None, "no process of this name answers at the default address"


def all_is_copied(lanes: Sequence[Mapping[str, int]], records: int) -> bool:
    """Return True if the lanes report all these records, and their transactions of at most 50 records each.

    A report between two updates may have one count without the other.
    """
    return sum(lane["records"] for lane in lanes) == records and sum(lane["transactions"] for lane in lanes) >= records / 50


def see_in_a_terminal(command: list[str], *words: str) -> None:
    """Read what a command shows in a terminal until all of these were there, then press Ctrl-C."""
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "50"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        output = ""
        deadline = time.monotonic() + STEP_SECONDS
        while not all(word in output for word in words):
            if time.monotonic() > deadline or not select.select([ours], [], [], STEP_SECONDS)[0]:
                process.kill()
                raise AssertionError(output)
            output += os.read(ours, 65_536).decode(errors="replace")
        process.send_signal(signal.SIGINT)
    os.close(ours)
    assert process.returncode == 130


def test_copies_that_scorer_check_creates_pass_publisher_check(make_relay: MakeRelay) -> None:
    rig = make_relay(source={"groups": ["new"]}, destination={"topic": "{region}.{topic}", "create_topics": False})
    rig.create(rig.source)
    scorer = {
        "name": rig.name,
        "kafka": {"bootstrap_servers": rig.destination},
        "input": {"topics": [rig.topic, f"eu.{rig.topic}"]},
        "output": {"topic": f"{rig.name}.out"},
        "model": {"source": "oci:./registry/model"},
    }
    path = rig.folder / "scorer.yaml"
    path.write_text(yaml.safe_dump(scorer))
    completed = warm.run([command("scorer"), "check", str(path), "--create", "--partitions", "4"])
    assert f"created topics: {rig.topic} (4), eu.{rig.topic} (4)" in completed.stderr.decode()
    details = [check["detail"] for check in rig.json("check", "--create")["checks"]]
    assert f"{rig.topic}, 4 partitions, is copied to eu.{rig.topic}" in details
    assert "consumer group new does not exist in eu (source) yet, or has no positions" in details


def test_every_setting_has_been_used(make_relay: MakeRelay) -> None:
    rig = make_relay(
        source={
            "fetch_bytes": 65_536,
            "queue_bytes": 1_048_576,
            "expanded_bytes": 33_554_432,
            "socket_buffer_bytes": 1_000_000,
            "extra": {"client.rack": "r"},
        },
        destination={"compression": "zstd", "transaction_timeout_ms": 20_000, "topic": "{topic}", "extra": {"linger.ms": 1}},
        bytes_per_second=20_000,
        transaction_records=100,
        lanes=3,
        filter={"number": [str(number) for number in range(900)]},
    )
    rig.configure(refusal_topic=f"{rig.name}.refusals", log={"level": "debug", "format": "text"})
    rig.create(rig.source)
    rig.fill(1_000)
    relay = rig.start().ready()
    until(lambda: relay.metric("publisher_records_total") > 0, "the first copies")
    assert relay.metric("publisher_records_total") < 900, "the limit of bytes a second"
    rig.wait_copied(900)
    assert relay.stop() == 0
    assert rig.json("audit")["copies"] == 900
    used = {name for name, _ in flatten(rig.configuration | {"filter": ""})} | {"source.extra", "destination.extra"}
    elsewhere = {"source.groups"}  # in test_failover.py: those want no filter
    elsewhere |= {f"{side}.security.{name}" for side in ("source", "destination") for name in SecuritySettings.model_fields}
    assert setting_names(RelaySettings) - used == elsewhere, "tests/integration/security/test_relay.py uses those of security"
