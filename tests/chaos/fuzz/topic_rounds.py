"""One round of hostile records on every topic that the product reads, beside a scorer, a relay and the commands that read them.

The records are whole values that are no document, and documents of the topic with one place damaged (`hostile_records`). Topics
that only the product may write to get no valid records with false content: a client that may write those is trusted.
"""

import contextlib
import json
import random
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition

from model_registry.errors import RegistryError
from publisher.errors import Fatal
from publisher.relay import checkpoints
from scorer.rollout.controller import log_records
from scorer.rollout.controller.analysis_step import StepAnalyzer
from scorer.rollout.controller.log_records import EntryKind, LogEntry, LoggedVersion, Outcome
from scorer.rollout.controller.rollout_state import RolloutLog
from scorer.settings import load
from tests.chaos.fuzz.played import SHOWN, TRACEBACK, Played, Positions, drain
from tests.integration.relay.rig import MakeRelay
from tests.integration.scorer.rig import MakeRig, Rig, events
from tests.support import auditor
from tests.support.hostile_records import BYTES, ESCAPES, KEYS, each_damaged
from tests.support.waiting import within

PARTITIONS = 3
METADATA_BYTES = 4_000
EVENTS = 60
LABEL = b'{"flight": {"id": "e1"}, "told": {"outcome": 1}}'
METADATA = b'{"owner": "another.a", "revision": 1, "digest": "sha256:a"}'
HEADERS = ("dead.source", "dead.reason", "dead.first", "dead.at", "ce_id", "x-origin", "x-hops", "deadline", "traceparent")
CANDIDATE = {"version": "2.0.0", "digest": "sha256:" + "b" * 64}
ROLLOUT, DECISION = "ro-1", 2
PLAN: dict[str, Any] = {
    "candidate": CANDIDATE["version"],
    "steps": [{"shadow": "100%"}, {"promote": True}],
    "rules": {"errors": 1.0, "flips": 1.0, "psi": 100.0},
}
ANALYSIS_SECONDS = 5.0
SCATTERED = "several partitions of one topic have answers to events"
"""Part of the reason if a decision cannot be verified because a copy of an answer in another partition was read first."""
TEXTS = (None, b"", b"9" * 5_000, b"-1", b"\xff\xfe", b"eu/t/0/1", b"%zz", ESCAPES.encode())
ALLOWED: dict[tuple[str, ...], set[int]] = {
    ("status", "scorer.yaml", "--json"): {0},
    ("tail", "scorer.yaml", "--no-follow"): {0},
    ("tail", "scorer.yaml", "--no-follow", "--dead"): {0},
    ("read", "scorer.yaml", "--labels"): {0},
    ("read", "scorer.yaml", "--labels", "--format", "csv"): {0},
    ("audit", "scorer.yaml", "--json"): {0, 1},
    ("labels", "scorer.yaml", "--json"): {0, 1},
    ("judge", "scorer.yaml"): {0, 1, 2},
    ("judge", "scorer.yaml", "--json"): {0, 1, 2},
    ("rollout", "status", "scorer.yaml"): {0, 1, 2},  # 2: there is none
    ("rollout", "verify", "scorer.yaml", str(DECISION), "--json"): {0, 1},  # 1 if SCATTERED is the reason
    ("replay", "scorer.yaml", "--dry-run", "--json"): {0, 1},
}
"""Commands, and the exit codes that are right although hostile records are there."""


def play(make_rig: MakeRig, make_relay: MakeRelay, seed: int, count: int) -> Played:
    draw = random.Random(seed)
    played = Played(seed, "hostile records on every topic")
    rig = make_rig()
    labels = f"{rig.name}.labels"
    rig.configure(labels={"topic": labels, "id": "flight.id", "value": "told.outcome", "classes": ["low", "high"]})
    rig.make_topic(labels, 1)
    rig.stocked(PARTITIONS)
    played.cases += commit(rig, draw)
    positions = Positions(rig, PARTITIONS)
    scorer, sent = rig.start().ready(), rig.emit(events(EVENTS))
    within(positions.drained, 120.0, every=0.5)
    relay_rig = make_relay(lanes=2)
    relay_rig.configure(source={"topics": [rig.scores_topic]})
    relay = relay_rig.start()
    write_candidate_answers(rig)
    valid = {topic: documents(rig, topic) for topic in product_topics(rig)}
    valid[labels] = [(b"k", LABEL)]
    valid[f"{relay_rig.name}.checkpoints"] = [(checkpoints.encode_key("another", "eu", "t", 0), b'{"next": 1}')]
    clusters = {f"{relay_rig.name}.checkpoints": relay_rig.destination}
    for topic, examples in valid.items():
        server = clusters.get(topic, rig.bootstrap_servers)
        played.cases += write(server, topic, examples, draw, count)
        sent += rig.emit(events(EVENTS, start=sent))
        positions.take_snapshot(time.monotonic())
    scorer_b = rig.start("b")  # one that reads all of it at its start
    sent += rig.emit(events(EVENTS, start=sent))
    drain(played, positions, [scorer, scorer_b])
    log_decision(played, rig, json.loads(valid[rig.scores_topic][0][1]))
    for command, codes in ALLOWED.items():
        completed = rig.run("scorer", *command, code=None)
        judge(played, completed, " ".join(command), codes)
        if "verify" in command and completed.returncode == 1 and SCATTERED not in completed.stderr:
            played.findings.append(f"verify ended with 1 for another reason: {(completed.stdout + completed.stderr)[-SHOWN:]}")
    trace_lineage(played, rig)
    for name in ("status", "audit"):
        completed = subprocess.run([*relay_rig.program, name, str(relay_rig.path)], capture_output=True, text=True, check=False)
        judge(played, completed, f"publisher {name}", {0, 1})
    if relay.ended:
        played.findings.append(f"the relay ended with {relay.process.returncode}: {relay.said[-SHOWN:]}")
    if TRACEBACK in relay.said:
        played.findings.append(f"the relay: {relay.said[relay.said.index(TRACEBACK) :][:SHOWN]}")
    if (scored_ids := answered(rig)) != {f"e{number}" for number in range(sent)}:
        played.findings.append(f"{len(scored_ids)} of {sent} events have a score")
    played.answers["events"] = sent
    return played


def product_topics(rig: Rig) -> list[str]:
    """Topics of the rig, those with records of the product first."""
    names = ("status", "swaps", "rollouts", "scores", "scores.shadow", "scores.corrections", "dead", "dead.replayed")
    existing = rig.admin.list_topics(timeout=10).topics
    return [topic for name in names if (topic := f"{rig.name}.{name}") in existing]


def write_candidate_answers(rig: Rig) -> None:
    """Write valid shadow answers and corrections of all scores, as `scorer run --shadow` and `scorer rescore` do."""
    roles = {"shadow": {"role": "shadow", "arm": "champion"}, "corrections": {"role": "champion", "arm": "champion"}}
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers})
    for score in auditor.read(rig.bootstrap_servers, rig.scores_topic):
        for name, role in roles.items():
            record = {**json.loads(score.value() or b""), **CANDIDATE, **role}
            value = json.dumps(record, separators=(",", ":")).encode()
            topic = f"{rig.scores_topic}.{name}"
            producer.produce(topic, value, score.key(), score.partition() or 0, timestamp=score.timestamp()[1])
    assert producer.flush(60) == 0, "the answers of the candidate were not delivered"


def log_decision(played: Played, rig: Rig, score: dict[str, Any]) -> None:
    """Log a rollout with a decision that is based on all answers, including the hostile records among them.

    `score` is a score record of the champion.
    """
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers})
    ledger = RolloutLog()

    def append(entry: LogEntry) -> None:
        key, value = f"{ROLLOUT}/{entry.seq}".encode(), log_records.encode(entry)
        ledger.apply(key, value)
        producer.produce(f"{rig.name}.rollouts", value, key)

    champion, candidate = LoggedVersion(score["digest"], score["version"]), LoggedVersion(**CANDIDATE)
    append(LogEntry(ROLLOUT, 0, EntryKind.STARTED, 1, "c", plan=PLAN, champion=champion, candidate=candidate, revision=1))
    append(LogEntry(ROLLOUT, 1, EntryKind.MOVED, 2, "c", 0, revision=2))
    rollout = ledger.rollouts[ROLLOUT]
    step = rollout.at()
    assert step is not None
    try:
        with contextlib.closing(StepAnalyzer(load(rig.path, []).settings, to_end=True)) as analyzer:
            analysis = analyzer.analyze(rollout, step, None, ANALYSIS_SECONDS)
    except (Fatal, RegistryError) as error:
        played.findings.append(f"the analysis of a rollout's step failed: {error}"[:SHOWN])
        return
    obstacles, judgement = list(analysis.obstacles), analysis.judgement
    ended = LogEntry(
        ROLLOUT, DECISION, EntryKind.ENDED, 3, "c", 0, outcome=Outcome.ABORTED, obstacles=obstacles, judgement=judgement
    )
    append(ended)
    assert producer.flush(60) == 0, "the log of the rollout was not delivered"


def documents(rig: Rig, topic: str) -> list[tuple[bytes | None, bytes]]:
    """Some records that the product wrote there, or one in the same form."""
    readable: list[tuple[bytes | None, bytes]] = []
    for message in auditor.read(rig.bootstrap_servers, topic):
        with contextlib.suppress(ValueError):
            value = message.value() or b""
            json.loads(value)
            readable.append((message.key(), value))
    return readable[:3] or [(b"k", b'{"id": "e1", "at_ms": 1, "name": "x", "revision": 1}')]


def hostile(examples: list[tuple[bytes | None, bytes]], draw: random.Random) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Yield hostile keys and values without end."""
    keys = [key for key, _ in examples]
    damaged = [value for _, value in each_damaged(draw.choice(examples)[1])]
    while True:
        yield draw.choice([*KEYS, *keys]), draw.choice([*BYTES.values()] if draw.random() < 0.4 else damaged)


def write(server: str, topic: str, examples: list[tuple[bytes | None, bytes]], draw: random.Random, count: int) -> int:
    """Write `count` records, each in a separate batch: a broker rejects whole batches. Return how many it accepted."""
    accepted = 0

    def on_delivery(error: object, _: object) -> None:
        nonlocal accepted
        accepted += error is None

    producer = Producer(
        {
            "bootstrap.servers": server,
            "message.max.bytes": 2_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
            "batch.num.messages": 1,
        }
    )
    for (key, value), _ in zip(hostile(examples, draw), range(count), strict=False):
        names = draw.choices(HEADERS, k=draw.choice([0, 0, 1, 3]))
        headers: list[tuple[str, str | bytes | None]] = [(name, draw.choice(TEXTS)) for name in names]
        producer.produce(topic, value, key, partition=0, headers=headers, on_delivery=on_delivery)
    assert producer.flush(60) == 0, f"hostile records for {topic} were not delivered"
    return accepted


def commit(rig: Rig, draw: random.Random) -> int:
    """Commit the start of each partition for the group, with hostile metadata."""
    texts = [value for value in (*BYTES.values(), *(v for _, v in each_damaged(METADATA))) if value]
    texts = [text for text in texts if len(text) <= METADATA_BYTES and b"\0" not in text]
    places = [
        TopicPartition(rig.events_topic, number, 0, draw.choice(texts).decode("utf-8", "replace")[: METADATA_BYTES // 4])
        for number in range(PARTITIONS)
    ]
    rig.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(rig.name, places)])[rig.name].result()
    return len(places)


def judge(played: Played, completed: subprocess.CompletedProcess[str], name: str, codes: set[int]) -> None:
    if TRACEBACK in completed.stderr or completed.returncode not in codes:
        played.findings.append(f"{name} ended with {completed.returncode}: {completed.stderr[-SHOWN:]}")
    played.answers[f"{name}: {completed.returncode}"] += 1
    if {"\x1b", "\x9b", "\u202e"} & set(completed.stdout):
        played.findings.append(f"{name} prints terminal escapes")


def trace_lineage(played: Played, rig: Rig) -> None:
    for partition in range(PARTITIONS):
        completed = rig.run("scorer", "lineage", "scorer.yaml", f"{rig.events_topic}/{partition}/0", "--json", code=None)
        judge(played, completed, "lineage", {0})


def answered(rig: Rig) -> set[str]:
    """Return the ids of events that have a score of the product. Hostile records among the scores are skipped."""
    ids: set[str] = set()
    for message in auditor.read(rig.bootstrap_servers, rig.scores_topic):
        with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
            record = json.loads(message.value() or b"")
            if isinstance(record["id"], str) and record["id"].startswith("e") and record["source"]["topic"] == rig.events_topic:
                ids.add(record["id"])
    return ids
