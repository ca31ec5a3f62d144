"""`scorer run --workers N` on the real broker: workers killed, drained, left behind by their supervisor, and misconfigured."""

import os
import re
import signal
from collections.abc import Sequence

import httpx

from scorer.demo.broker.kraft_config import free_ports, is_port_in_use
from tests.integration.scorer.rig import MakeRig, Rig, ScorerProcess, until
from tests.integration.scorer.test_kill import load
from tests.support.processes import alive

WORKERS = 2


def processes(supervisor: ScorerProcess) -> list[int]:
    pids = dict(re.findall(r"worker (\d+) is process (\d+)", supervisor.said))
    return [int(pids[number]) for number in sorted(pids)]


def shared(rig: Rig, owners: Sequence[str]) -> bool:
    """Whether exactly these scorers run and share the partitions."""
    rows = {row["scorer"]: len(row["partitions"]) for row in rig.fleet() if row["state"] == "running"}
    return rows == {f"{rig.name}.{owner}": 4 // len(owners) for owner in owners}


def started(rig: Rig) -> ScorerProcess:
    supervisor = rig.start("w", workers=WORKERS)
    until(lambda: shared(rig, ["w-0", "w-1"]), "both workers to share the partitions")
    return supervisor


def test_a_killed_worker_is_started_again_and_sigterm_drains_them_all(make_rig: MakeRig) -> None:
    port = next(port for port, _ in iter(free_ports, None) if not is_port_in_use(port + 1))
    rig = make_rig(http={"listen": f"127.0.0.1:{port}"}).stocked()
    supervisor = started(rig)
    count = 12_000
    flow = load(rig, count)
    until(lambda: rig.answered() > 2_000, "the first scores")
    for number in range(WORKERS):  # each has a port of its own
        text = httpx.get(f"http://127.0.0.1:{port + number}/metrics", timeout=10).text
        assert "scorer_assigned_partitions 2.0" in text
    victim = processes(supervisor)[1]
    os.kill(victim, signal.SIGKILL)
    until(lambda: processes(supervisor)[1] != victim, "the restart")
    assert "worker 1 was ended by SIGKILL; starting it again in 0.5 s" in supervisor.said
    flow.join()
    until(lambda: rig.answered() >= count, "all scores")
    until(lambda: shared(rig, ["w-0", "w-1"]), "both workers again")
    rig.assert_clean(events=count, scored=count)
    pids = processes(supervisor)
    assert supervisor.stop() == 0
    assert not any(map(alive, pids))
    assert sum(mark["offset"] for mark in rig.marks().values()) == count
    assert supervisor.said.count("everything scored is committed") == WORKERS
    assert {row["state"] for row in rig.fleet()} == {"stopped"}


def test_workers_shut_down_cleanly_when_their_supervisor_is_killed(make_rig: MakeRig) -> None:
    rig = make_rig().stocked()
    supervisor = started(rig)
    pids = processes(supervisor)
    count = 6_000
    flow = load(rig, count)
    until(lambda: rig.answered() > 2_000, "the first scores")
    supervisor.process.kill()
    until(lambda: not any(map(alive, pids)), "the end of the workers")
    assert supervisor.said.count("everything scored is committed") == WORKERS
    flow.join()
    rig.start("w", workers=WORKERS)
    until(lambda: rig.answered() >= count, "all scores")
    rig.assert_clean(events=count, scored=count)


def test_an_error_before_any_worker_serves_stops_all_with_one_message(make_rig: MakeRig) -> None:
    rig = make_rig().stocked()
    for flag, code, message in (
        ("output.topic=nowhere", 2, "topic nowhere does not exist"),
        ("model.tag=nowhere", 3, "nowhere"),
    ):
        supervisor = rig.start("w", "--set", flag, workers=3)
        assert supervisor.wait() == code, supervisor.said
        (error,) = (line for line in supervisor.lines() if line["level"] == "CRITICAL")
        assert (error["code"], error["scorer"]) == (code, f"{rig.name}.w")
        assert message in error["message"]
        assert not any(map(alive, processes(supervisor)))
    run = ("scorer", "run", "scorer.yaml", "--workers", "2", "--set")
    assert "http.listen: worker 1" in rig.run(*run, "http.listen=127.0.0.1:65535", code=2).stderr
    assert "replica: " in rig.run(*run, f"replica={'r' * 100}", code=2).stderr
    assert "--workers" in rig.run("scorer", "run", "scorer.yaml", "--workers", "0", code=2).stderr
