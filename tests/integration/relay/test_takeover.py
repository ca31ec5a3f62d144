"""Takeover: no process waits for the open transactions of a dead one, and a process that loses a lane names the new owner."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from confluent_kafka import Producer

from publisher.relay import checkpoints as checkpoint
from publisher.relay.checkpoints import Registration
from publisher.relay.clusters import open_checkpoint_log
from publisher.relay.fence import control_of, fence, registration
from publisher.relay.settings import load
from publisher.transactions.session import Record
from tests.integration.relay.rig import MakeRelay


def test_processes_to_fence_are_known_during_transactions_and_registration_comes_first(make_relay: MakeRelay) -> None:
    rig = make_relay(lanes=2).run_once(100)
    settings = load(rig.path).settings
    other = Producer({"bootstrap.servers": rig.destination, "transactional.id": f"{rig.name}.other"})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(settings.checkpoint_topic, None, checkpoint.encode_key("other"))
    other.flush(30)
    checkpoints = open_checkpoint_log(settings)
    checkpoints.refresh_visible(rig.name)
    assert checkpoints.registrations[rig.name].lanes == 2
    registered = registration(settings, "me", "a test")
    other.produce(settings.checkpoint_topic, checkpoint.encode(registered), checkpoint.encode_key(rig.name))
    other.flush(30)
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(checkpoints.refresh_visible, rig.name)
        other.commit_transaction(30)
        looking.result(30)
    assert checkpoints.registrations[rig.name].instance == "me"

    rig.configure(lanes=1)
    settings = load(rig.path).settings
    registrations: list[Registration] = []

    def opening(_: Record) -> None:
        checkpoints = open_checkpoint_log(settings)
        checkpoints.refresh_visible(rig.name)
        registrations.append(checkpoints.registrations[rig.name])

    with closing(control_of(settings)) as control:
        fence(settings, control, open_checkpoint_log(settings), registration(settings, "you", "a test"), [opening])
    assert [(process.instance, process.lanes) for process in registrations] == [("you", 2)], (
        "until all are fenced, as many lanes as there may be"
    )
    assert rig.start().ready().stop() == 0
