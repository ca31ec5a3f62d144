"""A member of the consumer group that is not a scorer is named by the running scorer, by `check` and by `status`."""

import contextlib
import json
import threading
from collections.abc import Iterator

from confluent_kafka import Consumer

from tests.integration.scorer.rig import MakeRig, Rig, events, until

CLIENT_ID = "reporting-job"


@contextlib.contextmanager
def foreign_member(rig: Rig, strategy: str) -> Iterator[None]:
    """A consumer in the scorers' group, as another team's program is one; it is assigned something before the test goes on."""
    consumer = Consumer(
        {
            "bootstrap.servers": rig.bootstrap_servers,
            "group.id": rig.name,
            "client.id": CLIENT_ID,
            "partition.assignment.strategy": strategy,
            "session.timeout.ms": 6_000,
        }
    )
    assigned, ending = threading.Event(), threading.Event()

    def work() -> None:
        while not ending.is_set():
            consumer.poll(0.1)
        consumer.close()

    consumer.subscribe([rig.events_topic], on_assign=lambda _, partitions: assigned.set() if partitions else None)
    thread = threading.Thread(target=work)
    thread.start()
    try:
        until(assigned.is_set, "partitions of the foreign member")
        yield
    finally:
        ending.set()
        thread.join()


def test_a_foreign_member_that_takes_partitions_is_named_until_it_has_left(make_rig: MakeRig) -> None:
    rig = make_rig().stocked()
    scorer = rig.start().ready()
    until(lambda: scorer.metric("scorer_assigned_partitions") == 4, "all partitions")
    with foreign_member(rig, "cooperative-sticky"):
        until(lambda: scorer.metric("scorer_foreign_members") == 1, "the foreign member in the metrics")
        assert f"members that are not scorers: client id '{CLIENT_ID}' on host 127.0.0.1 (2 partitions)" in scorer.said
        findings = json.loads(rig.run("scorer", "check", "scorer.yaml", "--json", code=1).stdout)["checks"]
        (finding,) = [finding for finding in findings if not finding["ok"]]
        assert finding["check"] == "group members"
        assert f"client id '{CLIENT_ID}' on host 127.0.0.1" in finding["detail"]
        status = rig.run("scorer", "status", "scorer.yaml", "--json")
        (member,) = json.loads(status.stdout)["foreign_members"]
        assert (member["client_id"], member["partitions"]) == (CLIENT_ID, 2)
        assert CLIENT_ID in status.stderr
    until(lambda: scorer.metric("scorer_foreign_members") == 0, "no foreign member")
    assert rig.run("scorer", "check", "scorer.yaml")
    assert json.loads(rig.run("scorer", "status", "scorer.yaml", "--json").stdout)["foreign_members"] == []


def test_readyz_names_a_foreign_member_with_another_protocol(make_rig: MakeRig) -> None:
    rig = make_rig().stocked()
    with foreign_member(rig, "range"):
        scorer = rig.start()
        until(lambda: CLIENT_ID in scorer.get("/readyz")[1], "the reason why it is not ready")
        code, reason = scorer.get("/readyz")
        assert code == 503
        assert f"consumer group {rig.name} has members that are not scorers" in reason
    rig.emit(events(5))
    scorer.ready()
    until(lambda: rig.answered() == 5, "all scores")
