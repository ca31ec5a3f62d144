"""The console counts dead letters as `scorer replay --dry-run` does: all of them, but for those replayed or that cannot be."""

import contextlib
import json
from typing import Any

from confluent_kafka import Producer

from publisher.kafka.source_position import Position
from scorer.console.kafka_feed import KafkaFeed
from scorer.console.state import LETTERS_KEPT, ConsoleState
from scorer.dead_letters.headers import dead_headers
from scorer.settings import load
from tests.integration.scorer.rig import MakeRig, Rig, until

COUNT = LETTERS_KEPT + 500


def write_letters(rig: Rig, numbers: range, topic: str, reason: str) -> None:
    """Write dead letters of events of a topic."""
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers, "linger.ms": 20})
    for n in numbers:
        source = Position("local", topic, n % 4, n)
        facts: dict[str, Any] = {"reason": reason, "error": "x", "model": "m:1.0.0@sha256:a", "at_ms": 1, "arm": "champion"}
        producer.produce(rig.dead_topic, b"{}", b"k", n % 4, headers=dead_headers(None, source=source, **facts))
    assert producer.flush(30) == 0


def test_the_console_counts_dead_letters_as_a_dry_run_does(make_rig: MakeRig) -> None:
    rig = make_rig().stocked()
    write_letters(rig, range(40), rig.events_topic, "wrong-type")
    rig.run("scorer", "replay", "scorer.yaml", "--reason", "wrong-type")
    write_letters(rig, range(40, 100), rig.events_topic, "wrong-type")
    write_letters(rig, range(100, COUNT), rig.events_topic, "malformed")
    write_letters(rig, range(7), "elsewhere", "malformed")
    dry = json.loads(rig.run("scorer", "replay", "scorer.yaml", "--dry-run", "--json").stdout)
    assert dry["by_reason"] == {"malformed": COUNT - 100, "wrong-type": 60}
    state = ConsoleState()
    with contextlib.closing(KafkaFeed(load(rig.path, []).settings, state)):
        until(lambda: state.loaded, "the console to have read the topics")
        with state.lock:
            by_reason, unfit, left_out = state.letters.by_reason(), state.letters.unfit(), state.letters.left_out()
    assert (dict(by_reason), unfit, left_out) == (dry["by_reason"], dry["unfit"], 0)
