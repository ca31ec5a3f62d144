"""Two versions' answers to the same events, judged from a real broker: scores, dead letters and a shadow's records."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions

from publisher.kafka.source_position import Position
from scorer.dead_letters.headers import dead_headers
from scorer.native.compiler import SWITCH
from scorer.scores.record import RecordEncoder
from tests.integration.scorer.rig import STEP_SECONDS, MakeRig, Rig, command, until
from tests.support.topics import settle

PARTITIONS = 3
KEYS = 2_000
OLD, NEW = "sha256:" + "a" * 64, "sha256:" + "b" * 64
CHAMPION = RecordEncoder(model="m", version="1.0.0", digest=OLD, role="champion", region="r")
SHADOW = RecordEncoder(model="m", version="2.0.0", digest=NEW, role="shadow", region="r")
FAILING = SHADOW.acting(role="shadow", arm="champion", revision=2, fallback="missing-field")
CANARY = RecordEncoder(model="m", version="2.0.0", digest=NEW, role="canary", region="r")
FALLBACK = CHAMPION.acting(role="champion", arm="canary", revision=2, fallback="inference-failed")
FORMER = RecordEncoder(model="m", version="1.0.0", digest=OLD, role="shadow", region="r")
Fails = Callable[[int], bool]


def never(_: int) -> bool:
    return False


class Bus:
    """Writes answers to event n of partition n mod `partitions`, at offset n div `partitions`, with key n mod KEYS."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self._producer = self._made()
        self._now = int(time.time() * 1_000)
        self.partitions = PARTITIONS

    def grow(self, partitions: int) -> None:
        """All topics have so many partitions from now on."""
        topics = (self.rig.scores_topic, self.rig.dead_topic, f"{self.rig.scores_topic}.shadow")
        settle(self.rig.admin.create_partitions([NewPartitions(topic, partitions) for topic in topics]))
        self.partitions, self._producer = partitions, self._made()
        for topic in topics:
            until(lambda: len(self._producer.list_topics(topic, 10).topics[topic].partitions) == partitions, topic)  # noqa: B023

    def _made(self) -> Producer:
        return Producer({"bootstrap.servers": self.rig.bootstrap_servers, "linger.ms": 20})

    def write(self, topic: str, n: int, value: bytes, headers: Any = None) -> None:
        while len(self._producer) > 50_000:
            self._producer.poll(0.05)
        key = b"k%d" % (n % KEYS)
        self._producer.produce(topic, value, key, n % self.partitions, timestamp=self._now, headers=headers)

    def record(self, topic: str, encoder: RecordEncoder, n: int, score: float | None = 0.75) -> None:
        """`score` None: the version cannot score event n."""
        place, offset = (self.rig.events_topic, n % self.partitions), n // self.partitions
        value, decision, status = b"null", None, "dead_lettered"
        if score is not None:
            value, decision, status = b"%.6f" % score, "late" if score >= 0.5 else "on time", "scored"
        (record,) = encoder.encode([f"e{n}"], [value], [decision], [place], [offset], [self._now], status, self._now)
        self.write(topic, n, record)

    def letter(self, n: int) -> None:
        """The champion does not score event n."""
        source = Position("r", self.rig.events_topic, n % self.partitions, n // self.partitions)
        facts = {"reason": "missing-field", "error": "x", "model": f"m:1.0.0@{OLD}", "at_ms": self._now, "arm": "champion"}
        self.write(self.rig.dead_topic, n, b"{}", dead_headers(None, source=source, **facts))  # type: ignore[arg-type]

    def label(self, value: bytes) -> None:
        self._producer.produce(f"{self.rig.name}.labels", value)

    def flush(self) -> None:
        assert self._producer.flush(STEP_SECONDS) == 0

    def answers(self, numbers: Sequence[int], fails: Fails = never, dead: Fails = never, flips: Fails = never) -> None:
        """The champion's answers, and those of the candidate as its shadow."""
        for n in numbers:
            if dead(n):
                self.letter(n)
            else:
                self.record(self.rig.scores_topic, CHAMPION, n, 0.25 if n % 2 else 0.75)
            if fails(n):
                self.record(f"{self.rig.scores_topic}.shadow", FAILING, n, None)
            else:
                self.record(f"{self.rig.scores_topic}.shadow", SHADOW, n, 0.75 if flips(n) or not n % 2 else 0.25)
        self.flush()


@pytest.fixture
def bus(make_rig: MakeRig) -> Bus:
    rig = make_rig()
    for topic in (rig.scores_topic, rig.dead_topic, f"{rig.scores_topic}.shadow"):
        rig.make_topic(topic, PARTITIONS)
    return Bus(rig)


def judged(bus: Bus, *flags: str, code: int = 0) -> dict[str, Any]:
    verdict: dict[str, Any] = json.loads(bus.rig.run("scorer", "judge", "scorer.yaml", "--json", *flags, code=code).stdout)
    return verdict


def rules(verdict: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {rule["rule"]: rule for rule in verdict["rules"]}


def test_a_good_candidate_may_be_promoted(bus: Bus) -> None:
    count = 12_000
    bus.answers(range(count), dead=lambda n: n % 500 == 7, fails=lambda n: n % 500 == 7, flips=lambda n: n % 100 == 1)
    verdict = judged(bus)
    assert (verdict["verdict"], verdict["champion"]["digest"], verdict["candidate"]["version"]) == ("promote", OLD, "2.0.0")
    errors, flips = rules(verdict)["errors"], rules(verdict)["flips"]
    both = count - count // 500
    assert (errors["estimate"], errors["pairs"], errors["margin"]) == (0.0, count, 0.005)
    assert (flips["pairs"], flips["estimate"]) == (both, pytest.approx(count / 100 / both))
    assert errors["cells"] > 1_000
    assert verdict["dropped"] == {"unsampled": 0, "orphans": 0, "crowded": 0, "foreign": 0, "unreadable": 0}
    assert {(d["champion"], d["candidate"]): d["events"] for d in verdict["decisions"]}["on time", "late"] == count // 100
    assert verdict["drift"]["psi"] < 0.1
    completed = bus.rig.run("scorer", "judge", "scorer.yaml")
    assert "late" in completed.stdout
    assert "promote" in completed.stderr
    hold = judged(bus, "--max-flips", "1%", code=1)
    assert (hold["verdict"], hold["why"][0].split(":")[0]) == ("hold", "flips")
    early = bus.rig.run("scorer", "judge", "scorer.yaml", "--to", "1000", "--json", code=1)
    assert json.loads(early.stdout)["verdict"] == "hold"


def test_the_verdict_is_the_same_without_the_native_part(bus: Bus) -> None:
    """Figures and decisions to the bit; only how many waited in vain depends on when they were read."""
    bus.answers(range(6_000), dead=lambda n: n % 100 == 7, fails=lambda n: n % 50 == 7, flips=lambda n: n % 30 == 1)
    bus.answers(range(6_000, 6_300), fails=lambda n: n % 3 == 0)
    verdicts = [judged(bus, code=1)]
    verb = [command("scorer"), "judge", "scorer.yaml", "--json"]
    completed = subprocess.run(verb, cwd=bus.rig.folder, capture_output=True, env=os.environ | {SWITCH: "0"}, check=False)
    verdicts.append(json.loads(completed.stdout))
    assert rules(verdicts[0])["errors"]["pairs"] == 6_300
    assert verdicts[0] == verdicts[1]


def test_a_candidate_that_fails_more_is_rolled_back_however_it_was_answered(bus: Bus) -> None:
    """A third by the shadow, a third as canary, of which some fall back to the champion. A failure counts once."""
    scores, shadow = bus.rig.scores_topic, f"{bus.rig.scores_topic}.shadow"
    for n in range(3_000):
        broken = n % 25 == 3
        if n % 3 == 0:
            bus.answers([n], fails=lambda n: n % 25 == 3)
        elif broken:
            bus.record(scores, FALLBACK, n)
            bus.record(shadow, SHADOW, n)
        else:
            bus.record(scores, CANARY, n)
            bus.record(shadow, FORMER, n)
    for n in range(3_000, 3_500):  # not sampled, and of another version
        bus.record(scores, CHAMPION if n % 2 else CANARY, n)
        if n < 3_100:
            bus.record(shadow, CHAMPION if n % 2 else CANARY, n)
    bus.record(shadow, SHADOW, 3_600)
    bus.flush()
    verdict = judged(bus, code=1)
    assert verdict["verdict"] == "roll back"
    assert rules(verdict)["errors"]["pairs"] == 3_000
    assert rules(verdict)["errors"]["estimate"] == pytest.approx(1 / 25)
    assert verdict["dropped"]["foreign"] == 100
    turned = judged(bus, "--champion", NEW, "--candidate", OLD, code=1)
    assert rules(turned)["errors"]["estimate"] == pytest.approx(-1 / 25)
    message = bus.rig.run("scorer", "judge", "scorer.yaml", "--champion", OLD, "--candidate", OLD, code=2).stderr
    assert "both champion and candidate" in message


def test_a_clock_asks_for_follow_and_for_a_duration(make_rig: MakeRig) -> None:
    rig = make_rig()
    assert "--bake needs --follow" in rig.run("scorer", "judge", "scorer.yaml", "--bake", "15m", code=2).stderr
    assert (
        "'soon' is not a valid duration"
        in rig.run("scorer", "judge", "scorer.yaml", "--follow", "--bake", "soon", code=2).stderr
    )


def test_no_data_is_no_success(make_rig: MakeRig) -> None:
    rig = make_rig()
    for topic in (rig.scores_topic, rig.dead_topic):
        rig.make_topic(topic, PARTITIONS)
    assert "scorer run --shadow" in rig.run("scorer", "judge", "scorer.yaml", code=2).stderr
    rig.make_topic(f"{rig.scores_topic}.shadow", 1)
    bus = Bus(rig)
    assert judged(bus, code=1)["verdict"] == "hold"
    for n in range(5_000):
        bus.record(rig.scores_topic, CHAMPION if n % 2 else CANARY, n)
    bus.flush()
    verdict = judged(bus, code=1)
    assert (verdict["verdict"], rules(verdict)["errors"]["pairs"]) == ("hold", 0)
    assert verdict["why"] == [f"{rule}: no pairs: no answer of the shadow was read" for rule in ("errors", "flips")]


def test_labels_decide_where_they_are_asked_for(bus: Bus) -> None:
    """The champion says 0.75 of even events and 0.25 of odd ones; the candidate is right more often, then less."""
    rig, count = bus.rig, 6_000
    assert "labels: {topic: NAME" in rig.run("scorer", "judge", "scorer.yaml", "--max-brier", "0.01", code=2).stderr
    rig.configure(labels={"topic": f"{rig.name}.labels", "id": "id", "value": "outcome", "classes": ["on time", "late"]})
    rig.make_topic(f"{rig.name}.labels", 1)
    bus.answers(range(count), flips=lambda n: n % 20 == 1)
    hold = judged(bus, "--max-brier", "0.01", code=1)
    assert any(line.startswith(f"brier: no pairs: none of {count:,} events") for line in hold["why"])
    for n in reversed(range(count)):
        label = {"id": f"e{n}", "outcome": "late" if n % 20 == 1 else int(n % 2 == 0)}
        bus.label(json.dumps(label).encode())
    bus.flush()
    verdict = judged(bus, "--max-brier", "0.01", "--max-flips", "10%")
    brier = rules(verdict)["brier"]
    assert (verdict["verdict"], brier["pairs"]) == ("promote", count)
    assert brier["estimate"] == pytest.approx((0.25**2 - 0.75**2) / 20, abs=2**-16)
    worse = judged(bus, "--max-brier", "0.01", "--champion", NEW, "--candidate", OLD, code=1)
    assert worse["verdict"] == "roll back"
    assert worse["why"][0].startswith("brier: +0.025")
    assert judged(bus, "--max-flips", "10%", "--max-psi", "0", code=1)["why"][0].startswith("psi: ")


def test_followed_until_there_is_a_verdict(bus: Bus) -> None:
    with subprocess.Popen(
        [command("scorer"), "judge", "scorer.yaml", "--follow", "--bake", "3s", "--json"],
        cwd=bus.rig.folder,
        stdout=subprocess.PIPE,
        text=True,
    ) as following:
        try:
            bus.answers(range(1_000))
            looks = _looks(following)
            first = next(look for look in looks if rules(look)["errors"]["pairs"] == 1_000)
            assert first["verdict"] == "hold"
            assert "errors: 1,000 pairs, 3,000 are required" in first["why"]
            bus.answers(range(1_000, 9_000))
            remaining = list(looks)
            last = remaining[-1]
            assert any(look["why"] and look["why"][0].startswith("baked for ") for look in remaining[:-1]), remaining
            assert (last["verdict"], following.wait(STEP_SECONDS)) == ("promote", 0)
            assert last["behind_seconds"] < 30.0
        finally:
            following.kill()


def test_partitions_that_are_added_meanwhile_are_judged_too(bus: Bus) -> None:
    """Of scores, dead letters and the shadow's answers: no other partition has pairs enough for a verdict."""
    with subprocess.Popen(
        [command("scorer"), "judge", "scorer.yaml", "--follow", "--json"],
        cwd=bus.rig.folder,
        stdout=subprocess.PIPE,
        text=True,
    ) as following:
        try:
            bus.answers(range(1_000))
            looks = _looks(following)
            assert any(rules(look)["errors"]["pairs"] == 1_000 for look in looks)
            bus.grow(PARTITIONS + 2)
            added = [n for n in range(20_000) if n % bus.partitions >= PARTITIONS]
            bus.answers(added, dead=lambda n: n % 500 == 9, fails=lambda n: n % 500 == 9)
            deadline = time.monotonic() + STEP_SECONDS
            last = next(look for look in looks if look["verdict"] != "hold" or time.monotonic() > deadline)
            assert last["verdict"] == "promote", last["why"]
            assert last["behind_seconds"] < 30.0
        finally:
            following.kill()
    verdict = judged(bus)
    assert (rules(verdict)["errors"]["pairs"], verdict["dropped"]["unsampled"]) == (1_000 + len(added), 0)


def _looks(following: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert following.stdout is not None
    for line in following.stdout:
        yield json.loads(line)
