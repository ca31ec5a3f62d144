"""Any system of the side-by-side benchmark under kill -9: killed again and again under load, begun again at once, and counted.

    python -m tests.campaigns.faults.side_by_side --model tab30.onnx --name ours -- python -m tests.proofs.bench.sut

The command hears what the benchmark harness tells it (BOOTSTRAP, IN_TOPIC, OUT_TOPIC, GROUP, MODEL, WORKLOAD, MODE), and its
name among `--instances` (INSTANCE) and a folder that outlives it (STATE_DIR). It answers events of 30 numbers with
`{"id": ..., ...}` under their keys. One line of JSON says what a reader of committed records saw: how many answers are missing,
doubled or nobody's, how many are behind a later one of their key, and the longest time that a partition stood still.
"""

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from scorer.demo.broker.embedded import EmbeddedBroker
from tests.campaigns.load import Load
from tests.campaigns.watch import Watch
from tests.proofs.bench.workload import Workload, event
from tests.support import auditor
from tests.support.waiting import within

PARTITIONS = 4
PATIENCE_SECONDS = 180.0  # what has not come by then is missing
QUIET_SECONDS = 5.0  # after the last event is answered: what comes twice shows by then


class System:
    def __init__(self, command: Sequence[str], environment: dict[str, str], folder: Path, instances: int) -> None:
        self._command = command
        self._environment = environment
        self._folder = folder
        self._running = [self._start(number) for number in range(instances)]

    def kill(self, number: int) -> None:
        """Kill an instance with all that belongs to it, and begin it again at once."""
        os.killpg(self._running[number].pid, signal.SIGKILL)
        self._running[number].wait()
        self._running[number] = self._start(number)

    def close(self) -> None:
        for process in self._running:
            process.terminate()
        for process in self._running:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        state = self._folder / f"state-{number}"
        state.mkdir(exist_ok=True)
        environment = {**os.environ, **self._environment, "INSTANCE": f"i{number}", "STATE_DIR": str(state)}
        with (self._folder / f"{number}.log").open("ab") as said:
            return subprocess.Popen(self._command, env=environment, stdout=said, stderr=said, start_new_session=True)


def count(servers: str, topic: str, written: int) -> dict[str, int]:
    """What a reader of committed records finds for the ids 0 to `written`."""
    seen: Counter[int] = Counter()
    last: dict[bytes | None, int] = {}
    out_of_order = 0
    for message in auditor.read(servers, topic):
        number = int(json.loads(message.value() or b"")["id"])
        seen[number] += 1
        out_of_order += number < last.get(message.key(), -1)
        last[message.key()] = max(number, last.get(message.key(), -1))
    answered = seen.keys() & set(range(written))
    return {
        "missing": written - len(answered),
        "duplicates": seen.total() - len(seen),
        "phantoms": len(seen) - len(answered),
        "out_of_order": out_of_order,
    }


def play(options: argparse.Namespace, servers: str, folder: Path) -> dict[str, object]:
    source, target = f"{options.name}.in", f"{options.name}.out"
    admin = AdminClient({"bootstrap.servers": servers})
    for done in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (source, target)]).values():
        done.result(30)
    told = {"BOOTSTRAP": servers, "IN_TOPIC": source, "OUT_TOPIC": target, "GROUP": options.name, "MODE": options.mode}
    told |= {"MODEL": str(options.model.resolve()), "WORKLOAD": "tab30"}
    pool = Workload().bodies()
    load, watch = Load(servers, source, options.rate, make=lambda number: event(pool, number)), Watch(servers, target)
    watch.start()
    system = System(options.command, told, folder, options.instances)
    try:
        load.start()
        within(lambda: watch.seen > 0, PATIENCE_SECONDS)
        watch.stalls.forget()
        for victim in itertools.islice(itertools.cycle(range(options.instances)), options.kills):
            time.sleep(options.every)
            system.kill(victim)
        time.sleep(options.every)
        load.finish()
        within(lambda: watch.seen >= load.written, PATIENCE_SECONDS)
        time.sleep(QUIET_SECONDS)
    finally:
        system.close()
        watch.close()
    figures = {"name": options.name, "mode": options.mode, "instances": options.instances, "kills": options.kills}
    counts = count(servers, target, load.written)
    return {**figures, "events": load.written, **counts, "longest_stall_seconds": round(watch.stalls.longest, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.faults.side_by_side", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--name", default="system", help="goes into the result, and is the group")
    parser.add_argument("--model", type=Path, required=True, help="an ONNX file of 30 inputs")
    parser.add_argument("--mode", choices=("eos", "alo"), default="eos")
    parser.add_argument("--instances", type=int, default=1, help="they take turns in being killed")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--every", type=float, default=15.0, help="seconds between kills")
    parser.add_argument("--rate", type=float, default=1_000.0, help="events a second")
    parser.add_argument("--logs", type=Path, help="a folder for what the instances say and keep")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    with EmbeddedBroker() as broker, tempfile.TemporaryDirectory(prefix="scorestream-killed-") as scratch:
        folder = options.logs or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        found = play(options, broker.bootstrap_servers, folder)
    print(json.dumps(found))
    sys.exit(0)


if __name__ == "__main__":
    main()
