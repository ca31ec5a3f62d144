"""Valid and invalid commands of operators, on the real broker."""

import json
import random
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import yaml

from model_registry.extras import install_command
from tests.integration.scorer.rig import STEP_SECONDS, MakeRig, Rig, command, events, until
from tests.support import auditor, models


def checks(rig: Rig, *flags: str, code: int) -> dict[str, str]:
    """`scorer check`: detail by check, of those that failed."""
    findings = json.loads(rig.run("scorer", "check", "scorer.yaml", "--json", *flags, code=code).stdout)
    assert findings["ok"] == (code == 0)
    return {finding["check"]: finding["detail"] for finding in findings["checks"] if not finding["ok"]}


def test_check_reports_faults_before_anything_runs(make_rig: MakeRig) -> None:
    rig, nowhere = make_rig(), ("--set", "kafka.bootstrap_servers=127.0.0.1:1")
    assert set(checks(rig, code=1)) == {"topic", "model"}
    assert "check CONFIG --create" in rig.run("scorer", "emit", "scorer.yaml", code=2).stderr
    message = rig.run("scorer", "emit", "scorer.yaml", *nowhere, code=4).stderr
    assert "no Kafka broker answers" in message
    assert len(message.splitlines()) == 2, "the client's own lines are not for people"
    rig.push(models.linear_package(rig.folder / "one", 2.0), "1.0.0")
    rig.promote("1.0.0")
    assert set(checks(rig, code=1)) == {"topic"}
    message = rig.run("scorer", "run", "scorer.yaml", code=2).stderr
    assert f"topic {rig.events_topic} does not exist" in message
    assert "check CONFIG --create" in message
    refused = checks(rig, "--create", "--partitions", "10001", code=1)
    assert set(refused) == {"broker"}, "it is not about rights"
    assert "Excessively large number of partitions per request" in refused["broker"]
    assert checks(rig, "--create", "--partitions", "3", code=0) == {}
    misspelt = f"input.topics=[{rig.events_topic[:-1]}]"
    message = rig.run("scorer", "emit", "scorer.yaml", "--set", misspelt, code=2).stderr
    assert f"did you mean '{rig.events_topic}'?" in message
    assert f"did you mean '{rig.events_topic}'?" in checks(rig, "--set", misspelt, code=1)["topic"]
    assert f"did you mean '{rig.events_topic}'?" in rig.run("scorer", "run", "scorer.yaml", "--set", misspelt, code=2).stderr
    dead = ("--set", f"dead_letter.topic={rig.dead_topic}s")
    message = rig.run("scorer", "replay", "scorer.yaml", *dead, code=2).stderr
    assert f"topic {rig.dead_topic}s does not exist: did you mean '{rig.dead_topic}'?" in message
    other, rollouts = ("--set", f"name={rig.name}s"), f"did you mean '{rig.name}.rollouts'?"
    for verb in (("rollout", "run", "scorer.yaml"), ("rescore", "scorer.yaml", "--status", "expired")):
        assert rollouts in rig.run("scorer", *verb, *other, code=2).stderr
    rig.emit([{"id": "0", "key": "k", "a": 1, "b": 2}])
    assert checks(rig, code=0) == {}
    assert "'name'; the event position is used as the id" in checks(rig, "--set", "input.id=name", code=1)["event ids"]
    rig.emit([{"id": "1", "key": "k", "a": 1, "b": 2}, {"id": "2", "key": "k", "a": "one", "b": 2}])
    assert "wrong-type" in checks(rig, code=1)["sample"]
    assert "no Kafka broker" in checks(rig, *nowhere, code=1)["broker"]
    blob = max((rig.folder / "registry").rglob("sha256/*"), key=lambda path: path.stat().st_size)
    blob.write_bytes(blob.read_bytes()[:-1] + b"!")
    shutil.rmtree(rig.folder / "cache")
    assert "sha256" in checks(rig, code=1)["model"]
    rig.alter(rig.dead_topic, "max.message.bytes", "1000")
    assert "max.message.bytes" in checks(rig, code=1)["topic"]
    assert "max.message.bytes" in rig.run("scorer", "run", "scorer.yaml", code=2).stderr
    rig.configure(kafka={"group_protocol": "consumer", "session_timeout_ms": 1_000})
    assert "group.consumer.session.timeout.ms" in checks(rig, code=1)["group protocol"]


def test_check_claims_nothing_that_it_has_not_tried(make_rig: MakeRig) -> None:
    rig = make_rig(delivery="at-least-once", input={"tombstones": "skip"})

    def details_of(*flags: str) -> dict[str, str]:
        completed = json.loads(rig.run("scorer", "check", "scorer.yaml", "--create", "--json", *flags).stdout)
        return {finding["check"]: finding["detail"] for finding in completed["checks"]}

    bare = json.loads(rig.run("scorer", "check", "scorer.yaml", "--json", code=1).stdout)["checks"]
    absent = next(finding["detail"] for finding in bare if finding["check"] == "optional topics")
    assert f"{rig.scores_topic}.shadow (scorer run --shadow)" in absent
    rig.push(models.linear_package(rig.folder / "one", 2.0), "1.0.0")
    rig.push(models.package(rig.folder / "two", lambda path: models.linear(path, 2.0)), "2.0.0")
    rig.promote("1.0.0")
    details = details_of()
    assert details["model"].endswith("loads and passes its golden examples (1)")
    assert details["native"].startswith("native library: ")
    assert details["rights"].endswith("allows: existing topics, group")
    assert details["sample"].endswith("the topic is empty")
    assert details["group members"] == f"consumer group {rig.name} does not exist yet: no scorer has joined it"
    assert "optional topics" not in details, "--create creates them"
    rig.promote("2.0.0")
    rig.produce(None, key=b"k")
    details = details_of("--set", "delivery=exactly-once")
    assert details["model"].endswith("loads and has no golden examples to compare with")
    assert details["rights"].endswith("allows: existing topics, group, transactions")
    assert "the newest 1 offsets of the topic contain no event" in details["sample"]


def test_offsets_that_the_topic_no_longer_holds_are_reported_with_the_remedy(make_rig: MakeRig) -> None:
    rig = make_rig().stocked()
    scorer = rig.start().ready()
    rig.emit(events(100))
    until(lambda: rig.answered() == 100, "the scores")
    assert scorer.stop() == 0
    rig.emit(events(100, start=100))
    rig.delete_records(rig.events_topic)
    scorer = rig.start()
    until(lambda: scorer.metric("scorer_partition_paused") == 4 and "scorer offsets" in scorer.said, "the alarm")
    assert scorer.stop() == 0
    rig.run("scorer", "offsets", "scorer.yaml", "--to", "9999999", code=2)
    rows = json.loads(rig.run("scorer", "offsets", "scorer.yaml", "--to", "earliest", "--json").stdout)["offsets"]
    assert all(row["committed"] == row["low"] == row["high"] for row in rows)
    rig.start().ready()
    rig.run("scorer", "offsets", "scorer.yaml", "--to", "latest", code=3)
    rig.emit(events(10, start=200))
    until(lambda: rig.answered() == 110, "scores after going on")


def test_events_are_written_with_the_times_that_they_name(make_rig: MakeRig) -> None:
    rig = make_rig().stocked()
    history = [{**event, "at": {"time": time}} for event, time in zip(events(2), ("2025-03-01T12:00:00", 7), strict=True)]
    (rig.folder / "history.jsonl").write_text("".join(json.dumps(event) + "\n" for event in history))
    rig.run("scorer", "emit", "scorer.yaml", "--file", "history.jsonl", "--time", "at.time")
    rig.start().ready()
    until(lambda: rig.answered() == 2, "the scores")
    lines = rig.run("scorer", "tail", "scorer.yaml", "--from-beginning", "--no-follow").stdout.splitlines()
    assert {json.loads(line)["event_ms"] for line in lines} == {7, 1_740_830_400_000}
    message = rig.run("scorer", "emit", "scorer.yaml", "--file", "history.jsonl", "--time", "at", code=2).stderr
    assert "line 1: {'time': '2025-03-01T12:00:00'} at 'at' is not a time" in message


def test_scores_status_metrics_and_logs_of_two_scorers(make_rig: MakeRig) -> None:
    rig = make_rig().stocked()
    first, second = rig.start("a").ready(), rig.start("b").ready()
    until(lambda: sum(len(s["partitions"]) for s in rig.fleet()) == 4, "the partitions")
    rig.emit(events(500))
    lines = rig.run("scorer", "tail", "scorer.yaml", "--from-beginning", "--events", "500").stdout.splitlines()
    assert {json.loads(line)["id"] for line in lines} == {f"e{n}" for n in range(500)}
    lines = rig.run("scorer", "tail", "scorer.yaml", "--from-beginning", "--no-follow").stdout.splitlines()
    times = [json.loads(line)["event_ms"] for line in lines]
    assert len(times) == 500
    assert times == sorted(times)
    assert "does not exist" in rig.run("scorer", "tail", "scorer.yaml", "--set", "output.topic=nowhere", code=2).stderr

    assert [s["scorer"] for s in rig.fleet()] == [f"{rig.name}.a", f"{rig.name}.b"]
    assert {s["versions"]["champion"]["version"] for s in rig.fleet()} == {"1.0.0"}
    for name in ("scorer_events_total", "scorer_event_latency_seconds_count"):
        assert first.metric(name) + second.metric(name) == 500
    text = first.get("/metrics")[1]
    for name in (
        "scorer_batches_total",
        "scorer_batch_events_bucket",
        "scorer_stage_seconds_total",
        "scorer_lag_records",
        "scorer_event_latency_seconds_bucket",
        "scorer_lag_seconds",
        "scorer_model_info",
        "scorer_swaps_total",
        "scorer_aborts_total",
        "scorer_producer_rotations_total",
        "scorer_commits_total",
        "scorer_commit_seconds_total",
        "scorer_batches_limited_total",
        "scorer_event_wait_seconds_bucket",
        "scorer_open_transaction_seconds",
        'scorer_device_info{backend="onnx-runtime",device="cpu"} 1.0',
        "scorer_build_info{",
        "process_resident_memory_bytes",
        "scorer_native_info",
    ):
        assert name in text, name
    assert (first.get("/livez")[0], first.get("/nothing")[0]) == (200, 404)
    assert {"time", "level", "logger", "message", "scorer"} <= set(first.lines()[0])
    assert first.stop() == 0
    assert "everything scored is committed" in first.said
    assert [s["state"] for s in rig.fleet()] == ["stopped", "running"]
    assert "1.0.0" in rig.run("scorer", "status", "scorer.yaml").stdout
    assert f"{rig.events_topic}[" in rig.run("scorer", "status", "scorer.yaml", "--wide").stdout


def test_settings_come_from_flag_environment_file_and_default(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig(region="${WHERE:-somewhere}", kafka={"extra": {"sasl.password": "hush", "client.rack": "r1"}})
    monkeypatch.setenv("SCORER_BATCHING__MAX_EVENTS", "77")
    output = rig.run("scorer", "config", "scorer.yaml", "--set", "input.start=latest", "--json").stdout
    values = json.loads(output)
    assert values["input.start"] == {"value": "latest", "from": "--set"}
    assert values["batching.max_events"] == {"value": 77, "from": "environment"}
    assert values["region"]["value"] == "somewhere"
    assert values["name"]["from"] == "scorer.yaml"
    assert values["http.listen"]["value"] == "127.0.0.1:0"
    assert values["kafka.group_protocol"] == {"value": "classic", "from": "default"}
    assert values["kafka.extra.client.rack"]["value"] == "r1"
    assert "hush" not in output + rig.run("scorer", "config", "scorer.yaml").stdout


WRONG = {
    "batching.latency_target=10": ["batching.latency_target", "latency_target_ms"],
    "kafka.group_protocol=clasic": ["kafka.group_protocol", "clasic", "classic"],
    "batching.max_events=0": ["batching.max_events", "0"],
    "modle.tag=prod": ["modle", "'model'"],
    "replica=a/b": ["replica", "a/b"],
    "model.source=ftp://x": ["model.source", "ftp://x"],
}


def test_invalid_settings_are_named_with_their_value_and_the_remedy(make_rig: MakeRig) -> None:
    rig = make_rig()

    def error_of(*flags: str, file: str = "scorer.yaml") -> str:
        return rig.run("scorer", "config", file, *flags, code=2).stderr

    for flag, parts in WRONG.items():
        assert all(part in error_of("--set", flag) for part in parts), flag
    settings = yaml.safe_load(rig.path.read_text())
    del settings["output"]
    for text, part in (
        (yaml.safe_dump(settings), "output: this setting is missing"),
        ("name: [", "not YAML"),
        ("name: ${SURELY_NOT_SET}", "SURELY_NOT_SET"),
    ):
        rig.path.write_text(text)
        assert part in error_of()
    assert "nowhere.yaml" in error_of(file="nowhere.yaml")


def test_without_a_backend_one_line_names_the_package_to_install(make_rig: MakeRig, tmp_path: Path) -> None:
    rig = make_rig().stocked()
    blocked = tmp_path / "site"
    blocked.mkdir()
    (blocked / "onnxruntime.py").write_text("raise ImportError('not installed')\n")
    scorer = rig.start("a", PYTHONPATH=str(blocked))
    assert scorer.wait() == 2
    assert install_command("cpu") in scorer.said


def test_emit_names_the_limit_that_an_event_exceeds(make_rig: MakeRig) -> None:
    """What is sent together stays below the topic's limit, so that an event is rejected for its own size alone."""
    rig = make_rig()
    rig.create(code=1)  # no model exists yet
    rig.alter(rig.events_topic, "max.message.bytes", "20000")
    noise = random.Random(5).randbytes(40_000).hex()
    assert rig.emit([{"id": f"{n}", "noise": noise[100 * n : 100 * n + 100]} for n in range(500)], key=None) == 500
    line = json.dumps({"id": "large", "noise": noise}).encode()
    message = rig.run("scorer", "emit", "scorer.yaml", stdin=line + b"\n", code=4).stderr
    assert f"an event of {len(line)} bytes is too large for topic {rig.events_topic}" in message
    assert "its max.message.bytes is 20000 bytes" in message


def test_emit_writes_only_events_and_reports_their_number(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.make_topic(rig.events_topic, 1)
    lines = b"".join(json.dumps(event).encode() + b"\n" for event in events(30))
    message = rig.run("scorer", "emit", "scorer.yaml", stdin=lines + b"[\n", code=2).stderr
    assert "line 31 is not JSON" in message
    assert "30 events were written" in message
    (rig.folder / "events.json").write_text(json.dumps([*events(30)], indent=2))
    message = rig.run("scorer", "emit", "scorer.yaml", "--file", "events.json", code=2).stderr
    assert "the file is an indented array; 0 events were written" in message
    assert "jq -c '.[]' FILE" in message
    assert "--topic" in rig.run("scorer", "emit", "scorer.yaml", "--topic", "", stdin=lines, code=2).stderr
    assert (
        "is not a valid topic name" in rig.run("scorer", "emit", "scorer.yaml", "--topic", "\udcff", stdin=lines, code=2).stderr
    )
    assert "remove --raw" in rig.run("scorer", "emit", "scorer.yaml", "--raw", "--value", "x", code=2).stderr
    assert rig.emit([b"{"], key=None) == 1
    assert sum(rig.ends().values()) == 31


def counts(written: int, skip: int) -> dict[str, int]:
    """Return the report of emit without uncertain events."""
    return {"written": written, "uncertain": 0, "rejected": 0, "skip": skip, "repeated": 0}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_emit_reports_the_number_of_written_events(make_rig: MakeRig, number: int, code: int) -> None:
    rig = make_rig()
    rig.make_topic(rig.events_topic, 1)
    with subprocess.Popen(
        [command("scorer"), "emit", "scorer.yaml", "--json"],
        cwd=rig.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as emitting:
        assert emitting.stdin
        emitting.stdin.write(b"".join(json.dumps(event).encode() + b"\n" for event in events(30)))
        emitting.stdin.flush()
        until(lambda: sum(rig.ends().values()) == 30, "the events")
        emitting.send_signal(number)
        out, err = emitting.communicate(timeout=STEP_SECONDS)
    assert json.loads(out) == counts(30, skip=30)
    assert b"interrupted: 30 events were written" in err
    assert b"run the command again with --skip 30" in err
    assert emitting.returncode == code


def test_emit_continues_behind_the_lines_that_it_has_written(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.make_topic(rig.events_topic, 3)
    lines = [json.dumps(event) for event in events(60)]
    (rig.folder / "events.jsonl").write_text(
        "\n".join([*lines[:40], "", '{"id": "\udcff"}', *lines[40:]]), errors="surrogateescape"
    )
    emit = ("scorer", "emit", "scorer.yaml", "--json", "--file")
    completed = rig.run(*emit, "events.jsonl", code=2)
    assert json.loads(completed.stdout) == counts(40, skip=40)
    assert "line 42 is not JSON" in completed.stderr
    assert "run the command again with --skip 40" in completed.stderr
    (rig.folder / "events.jsonl").write_text("\n".join([*lines[:40], "", *lines[40:]]))
    assert json.loads(rig.run(*emit, "events.jsonl", "--skip", "40").stdout) == counts(20, skip=61)
    assert {json.loads(message.value() or b"")["id"] for message in auditor.read(rig.bootstrap_servers, rig.events_topic)} == {
        f"e{n}" for n in range(60)
    }
    assert sum(rig.ends().values()) == 60
    completed = rig.run(*emit, "event.jsonl", code=2)
    assert json.loads(completed.stdout) == counts(0, skip=0)
    assert "did you mean 'events.jsonl'?" in completed.stderr
    assert "Is a directory; 0 events were written" in rig.run(*emit, ".", code=2).stderr
    assert json.loads(rig.run(*emit, "-", stdin=b"").stdout) == counts(0, skip=0)


def test_emit_counts_rejected_and_previously_confirmed_events(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.make_topic(rig.events_topic, 1)
    rig.alter(rig.events_topic, "max.message.bytes", "20000")
    noise = random.Random(6).randbytes(40_000).hex()
    lines = [json.dumps(event).encode() for event in (*events(5), {"id": "large", "noise": noise})]
    completed = rig.run("scorer", "emit", "scorer.yaml", "--json", stdin=b"\n".join(lines), code=4)
    assert json.loads(completed.stdout) == {"written": 5, "uncertain": 0, "rejected": 1, "skip": 5, "repeated": 0}
    assert "5 events were written, 1 were not written" in completed.stderr
