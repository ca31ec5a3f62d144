"""Schema ids that a registry refuses, fails at or does not know: their events are dead letters, and nothing else waits."""

import json
import struct
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from tests.integration.registry.hostile import Hostile, Reply
from tests.integration.scorer.rig import MakeRig, Rig, until

GUID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
FIELDS = [{"name": name, "type": type_} for name, type_ in (("id", "string"), ("a", "float"), ("b", "float"))]
SCHEMA = json.dumps({"type": "record", "name": "E", "fields": FIELDS})
REFERS = {"schema": SCHEMA, "references": [{"name": "R", "subject": "secret", "version": 1}]}


def answer(status: int, message: str) -> Reply:
    return Reply(status, json.dumps({"error_code": status * 100 + 3, "message": message}).encode())


ANSWERS = {
    "/schemas/ids/1": Reply(body=json.dumps({"schema": SCHEMA}).encode()),
    f"/schemas/guids/{GUID}": Reply(body=json.dumps({"schema": SCHEMA, "guid": GUID}).encode()),
    "/schemas/ids/2": answer(403, "rule 3 denies it"),
    "/schemas/ids/3": answer(401, "not for you"),
    "/schemas/ids/4": answer(500, "the storage is torn"),
    "/schemas/ids/5": Reply(body=json.dumps(REFERS).encode()),
    "/subjects/secret/versions/1": answer(403, "the subject is secret"),
    "/subjects": Reply(body=b'["s-value"]'),
}


@contextmanager
def stub() -> Iterator[Hostile]:
    server = Hostile()
    server.script = lambda seen: ANSWERS.get(seen.path.partition("?")[0], answer(404, "Schema not found"))
    try:
        yield server
    finally:
        server.close()


def body(name: str, a: float) -> bytes:
    return bytes([2 * len(name)]) + name.encode() + struct.pack("<ff", a, 0.0)


def event(number: int, name: str, a: float = 1.0) -> bytes:
    return struct.pack(">bI", 0, number) + body(name, a)


def produce(rig: Rig, values: Iterable[bytes]) -> None:
    """Write values to the input topic, over all partitions."""
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers, "linger.ms": 5})
    for at, value in enumerate(values):
        producer.produce(rig.events_topic, value, b"k%d" % (at % 40))
    assert producer.flush(30) == 0


def test_events_of_refused_schema_ids_are_dead_letters_and_the_service_continues(make_rig: MakeRig) -> None:
    with stub() as server:
        rig = make_rig(input={"format": "avro"}, schema_registry={"url": f"http://{server.address}"}).stocked()
        for number in (2, 3, 4, 5):
            rig.produce(event(number, f"bad-{number}"), key=b"k")
        rig.produce(event(1, "good"), key=b"k")
        rig.produce(body("by-guid", 2.0), key=b"k", headers=[("__value_schema_id", b"\1" + uuid.UUID(GUID).bytes)])
        rig.produce(event(1, "", 3.0), key=b"k", headers=[("__value_schema_id", b"\1")])
        scorer = rig.start().ready()
        until(lambda: rig.answered() == 7, "all answers")
        assert {record["id"]: record["score"] for record in rig.scores()} == {"good": 2.0, "by-guid": 4.0}
        errors = " ".join(letter["error"] for letter in rig.dead())
        for text in ("rule 3 denies it", "not for you", "3 times for schema 4", "the storage is torn", "the subject is secret"):
            assert text in errors
        assert "header __value_schema_id is b'\\x01', which is not the id of a schema" in errors
        assert {letter["reason"] for letter in rig.dead()} == {"unknown-schema"}
        assert scorer.deaths == 0
        assert scorer.stop() == 0


def test_a_registry_that_rejects_everything_ends_a_start_with_a_reason(make_rig: MakeRig) -> None:
    with stub() as server:
        server.always(answer(401, "who are you?"))
        url = f"http://me:canary@{server.address}"
        rig = make_rig(input={"format": "avro"}, schema_registry={"url": url}).stocked()
        rig.produce(event(1, "good"), key=b"k")
        scorer = rig.start()
        assert scorer.wait() == 3
        assert f"schema registry http://{server.address}: who are you?" in scorer.said
        assert "check schema_registry.extra" in scorer.said
        assert "canary" not in scorer.said


def test_good_events_do_not_wait_for_a_flood_of_unknown_ids(make_rig: MakeRig) -> None:
    with stub() as server:
        rig = make_rig(input={"format": "avro"}, schema_registry={"url": f"http://{server.address}"}).stocked()
        scorer = rig.start().ready()
        rig.produce(event(1, "first"), key=b"k")
        until(lambda: rig.answered() == 1, "the first score")
        produce(rig, (event(1_000 + n if n % 2 else 1, f"{n}") for n in range(6_000)))
        until(lambda: rig.answered() == 6_001, "all answers")
        assert len(rig.scores()) == 3_001
        assert scorer.deaths == 0
        paths = Counter(seen.path.partition("?")[0] for seen in server.seen)
        assert paths["/subjects"] <= 60  # no list of subjects for each unknown id
        assert sum(count for path, count in paths.items() if path.startswith("/schemas/ids/")) < 600  # a budget per 10 s
        assert scorer.stop() == 0
