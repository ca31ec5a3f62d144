"""No record is lost, doubled or reordered if the relay dies at any step, or either broker."""

import signal

from scorer.demo.broker.embedded import EmbeddedBroker
from tests.chaos.relay.stage import LAUNCHER
from tests.integration.relay.counting import CLEAN
from tests.integration.relay.rig import MakeRelay
from tests.support.waiting import until

COMMIT = ("before:commit_transaction", "during:commit_transaction", "after:commit_transaction")


def test_a_kill_at_any_step_loses_and_doubles_nothing(make_relay: MakeRelay) -> None:
    rig = make_relay(lanes=2, transaction_records=50)
    rig.create(rig.source)
    armed = rig.folder / "armed"
    for copying, points in ((False, COMMIT), (True, ("before:flush", *COMMIT))):
        for point in points:
            rig.fill(500)
            if not copying:  # the first transaction registers the process
                armed.symlink_to(point)
            killed = rig.start(program=LAUNCHER, ARM_FILE=str(armed))
            if copying:
                killed.ready()
                armed.symlink_to(point)
                rig.fill(500)
            assert killed.wait() == -signal.SIGKILL, killed.said
    last = rig.start().ready()
    rig.wait_copied(rig.written)
    assert last.stop() == 0
    assert rig.audit() == CLEAN


def test_a_silent_source_is_reported_and_copied_again_when_it_answers(eu: EmbeddedBroker, make_relay: MakeRelay) -> None:
    rig = make_relay()
    rig.create(rig.source)
    rig.fill(1_000)
    relay = rig.start().ready()
    rig.wait_copied(1_000)
    eu.pause()
    try:
        until(lambda: relay.get("/readyz")[0] == 503, "the silence")
        assert "the source has not answered" in relay.get("/readyz")[1]
        assert relay.metric("publisher_lag_seconds") > 0
    finally:
        eu.resume()
    relay.ready()
    rig.fill(1_000)
    rig.wait_copied(2_000)
    assert relay.stop() == 0
    assert rig.audit() == CLEAN
