"""The demo itself, at small size, as a stranger runs it."""

import contextlib
import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from tests.integration.scorer.rig import command, until
from tests.support.processes import alive, free_port
from tests.support.waiting import STEP_SECONDS


def demo(*flags: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    completed = subprocess.run([command("scorer"), "demo", *flags], capture_output=True, text=True, check=False)
    assert completed.returncode == code, completed.stdout + completed.stderr
    return completed


def test_the_demo_swaps_kills_and_counts_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = {process.pid for process in psutil.process_iter()}
    completed = demo("--events", "6000", "--rate", "1500", "--json")
    summary = json.loads(completed.stdout)
    counts = ("missing", "duplicates", "phantoms", "out_of_order", "version_regressions", "dead_lettered")
    assert {name: summary[name] for name in counts} == dict.fromkeys(counts, 0)
    assert summary["events"] == summary["scored"] >= 6_000
    assert set(summary["versions"]) == {"1.0.0", "2.0.0"}
    assert sum(version["events"] for version in summary["versions"].values()) == summary["events"]
    assert all(0.8 < version["auc"] < 1.0 for version in summary["versions"].values())
    assert len(summary["cut_over"]) == 6
    assert summary["latency_ms"]["p50"] <= summary["latency_ms"]["p99"]
    assert summary["throughput_eps"] > 0
    assert summary["swap_pause_ms"] > 0
    assert summary["kill_pause_ms"] > 0
    for step in ("model-registry push", "scorer check", "scorer run", "scorer emit", "model-registry promote", "kill -9"):
        assert f"$ {step}" in completed.stderr
    assert list(tmp_path.iterdir()) == []
    command_lines = [p.info["cmdline"] for p in psutil.process_iter(["cmdline"]) if p.pid not in before]
    assert not [line for line in command_lines if line and str(tmp_path) in " ".join(line)]


def test_two_regions_and_a_killed_publisher_continue_until_the_last_line_is_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    completed = demo("--regions", "--events", "1000", "--rate", "500", "--keep", "--json")
    lines = [line.removeprefix("  $ ") for line in completed.stderr.splitlines() if line.startswith("  $ ")]
    go, last = next(line for line in lines if line.startswith("cd ")), lines[-1]
    try:
        summary = json.loads(completed.stdout)
        assert summary["clean"]
        near, far = summary["regions"]["eu-west"], summary["regions"]["us-east"]
        counts = ("missing", "duplicates", "phantoms", "out_of_order")
        assert {name: region[name] for region in (near, far) for name in counts} == dict.fromkeys(counts, 0)
        assert far["events"] == far["scored"] == near["scored"] == near["events"] >= 1_000
        assert far["versions"] == near["versions"]
        assert far["kill_pause_ms"] > 0
        assert [line.split()[0] for line in lines].count("publisher") == 4, "check, run, run again, and what may be typed next"
        scorers, relay = (asked(go, line) for line in lines if line.startswith(("scorer status", "publisher status")))
        assert [scorer["state"] for scorer in scorers["scorers"]] == ["running", "running"]
        assert relay["process"]["copying"]
        assert sum(partition["next"] for partition in relay["partitions"]) >= near["scored"]
    finally:
        subprocess.run(["bash", "-c", last], check=True)
    pids = [int(pid) for group in re.findall(r"kill ([\d ]+)", last) for pid in group.split()]
    until(lambda: not any(alive(pid) for pid in pids), "the end of what was kept")
    assert list(tmp_path.glob("scorestream-demo-*")) == []


def asked(go: str, line: str) -> Any:
    """What a line that may be typed in the demo's folder prints with --json."""
    program, *words = line.replace(" --live", "").split()
    typed = f"{go} && {command(program)} {' '.join(words)} --json"
    return json.loads(subprocess.run(["bash", "-c", typed], capture_output=True, text=True, check=True).stdout)


def test_a_rollout_acts_by_itself_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    completed = demo("--rollout", "--events", "6000", "--rate", "2000", "--no-kill", "--json")
    summary = json.loads(completed.stdout)
    assert summary["rollouts"] == {"2.0.0": "completed", "2.1.0": "rolled back"}
    counts = ("missing", "duplicates", "phantoms", "out_of_order", "version_regressions", "dead_lettered")
    assert {name: summary[name] for name in counts} == dict.fromkeys(counts, 0)
    assert set(summary["versions"]) == {"1.0.0", "2.0.0", "2.1.0"}
    assert summary["versions"]["2.1.0"]["events"] < summary["events"] / 20
    assert "rolled back: flips: " in completed.stderr
    assert "the same, from " in completed.stderr
    assert "--regions" in demo("--rollout", "--regions", code=2).stderr
    assert list(tmp_path.iterdir()) == []


def test_flights_joined_with_the_weather_are_scored_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    completed = demo("--tables", "--events", "12000", "--rate", "2000", "--json")
    summary = json.loads(completed.stdout)
    counts = ("missing", "duplicates", "phantoms", "out_of_order", "version_regressions", "dead_lettered")
    assert {name: summary[name] for name in counts} == dict.fromkeys(counts, 0)
    assert summary["clean"]
    assert summary["kill_pause_ms"] > 0
    without, with_weather = summary["same_flights"]["2.0.0"], summary["same_flights"]["3.0.0"]
    assert without["events"] == with_weather["events"] > 3_000
    assert with_weather["auc"] > without["auc"]
    assert "hourly reports" in completed.stderr
    assert list(tmp_path.iterdir()) == []


def test_kafka_alone_runs_until_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    port = str(free_port())
    with contextlib.ExitStack() as closing:
        running = subprocess.Popen([command("scorer"), "demo", "--only-kafka", port], stderr=subprocess.PIPE, text=True)
        closing.callback(running.kill)
        assert running.stderr is not None
        assert f"127.0.0.1:{port}" in running.stderr.readline()
        assert AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"}).list_topics(timeout=10).brokers
        assert f"port {port} of 127.0.0.1 is taken" in demo("--only-kafka", port, code=4).stderr
        running.send_signal(signal.SIGINT)
        assert running.wait(STEP_SECONDS) == 130
    assert list(tmp_path.iterdir()) == []


def test_missing_clusters_are_reported_in_one_line() -> None:
    assert "--bootstrap-servers" in demo("--regions", "--bootstrap-servers", "127.0.0.1:1", code=2).stderr
    completed = demo("--bootstrap-servers", "127.0.0.1:1", code=4)
    assert "no Kafka broker answers" in completed.stderr
    assert "Traceback" not in completed.stderr
