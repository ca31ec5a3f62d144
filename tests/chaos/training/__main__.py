"""`python -m tests training`: trainings under `kill -9`, on a real broker, with registries in folders and over HTTP.

Every round is one training on its own data. Its process is killed after and during its steps, and restarted until it ends by
itself. Then the results are counted: one version with one digest, one move of the channel, one signature, one attestation of
each type, the trigger's offsets at the end of the labels, no process. Some versions are retrained by `reproduce`. The exit
code is 1 if a count differs.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model_registry.errors import RegistryError
from scorer.demo.broker.embedded import EmbeddedBroker
from tests.chaos.command import exit_on_sigterm, talk
from tests.chaos.training.counting import faults, strays
from tests.chaos.training.ground import Ground
from tests.chaos.training.plan import Kill, Round, rounds
from tests.integration.registry.server import DockerRegistry
from tests.support.waiting import within

ENDED, UNAVAILABLE = 0, 4  # exit codes of a run
MAX_WAIT_SECONDS = 120.0
STARTS = 12


@dataclass
class Result:
    """The result of a round: the steps at which its process was killed, and the faults."""

    number: int
    killed: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    reproduced: bool = False
    seconds: float = 0.0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests training", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=56, help="trainings, each on its own data")
    parser.add_argument("--seed", type=int, default=1, help="of the kills")
    parser.add_argument("--reproduce", type=int, default=4, help="retrain one of so many versions")
    parser.add_argument("--own", action="store_true", help="train with a custom recipe, in place of trees")
    parser.add_argument("--json", action="store_true", help="the figures as one line on stdout")
    options = parser.parse_args(arguments)
    if min(options.rounds, options.reproduce) < 1:
        parser.error("--rounds and --reproduce take 1 or more")
    exit_on_sigterm()
    folder = Path(tempfile.mkdtemp(prefix="scorestream-training-"))
    registry = DockerRegistry(folder / "http")
    registry.start()
    try:
        with EmbeddedBroker(heap_mb=1_024, quick_start=False) as broker:
            played = [
                play(
                    broker.bootstrap_servers,
                    folder,
                    registry,
                    round_,
                    again=round_.number % options.reproduce == 0,
                    own=options.own,
                )
                for round_ in rounds(options.rounds, options.seed)
            ]
    finally:
        registry.kill()
    faulty = [result for result in played if result.faults]
    figures = {
        "rounds": len(played),
        "bad": len(faulty),
        "kills": sum(len(result.killed) for result in played),
        "killed": dict(Counter(where for result in played for where in result.killed)),
        "reproduced": sum(result.reproduced for result in played),
        "faults": {result.number: result.faults for result in faulty},
    }
    print(json.dumps(figures, indent=None if options.json else 1))
    if not faulty:
        shutil.rmtree(folder)
    return 1 if faulty else 0


def play(servers: str, folder: Path, registry: DockerRegistry, planned: Round, *, again: bool, own: bool) -> Result:
    """Run one training, with kills and restarts until it ends by itself, and count the results."""
    began, result = time.monotonic(), Result(planned.number)
    address = registry.address if planned.http else None
    place = folder / f"round{planned.number}"
    ground = Ground(servers, place, address, 1_000 + planned.number, champion=planned.champion, own=own)
    try:
        report = _trained(ground, registry, planned, result)
        result.faults += faults(ground, report)
        if again and not result.faults:
            result.reproduced = _reproduced(ground, report["version"], result)
    except (RuntimeError, OSError, RegistryError, json.JSONDecodeError) as error:
        result.faults.append(f"{type(error).__name__}: {error}")
    result.seconds = round(time.monotonic() - began, 1)
    talk.print(
        f"round {planned.number}: {', '.join(result.killed) or 'no kill'}; {result.faults or 'clean'}; {result.seconds} s",
        markup=False,
    )
    if not result.faults:
        shutil.rmtree(ground.folder)
    return result


def _trained(ground: Ground, registry: DockerRegistry, planned: Round, result: Result) -> dict[str, Any]:
    """Return the report of the run at its end. Raises RuntimeError if it does not end."""
    kills, outage = list(planned.kills), planned.outage
    for _ in range(STARTS):
        process = ground.training("run")
        if outage is not None and _reached(ground, process, outage):
            _interrupt_registry(registry, process)
            outage = None
            result.killed.append("the registry")
        elif kills and _hit(ground, process, kill := kills.pop(0)):
            process.kill()
            result.killed.append(f"{kill.after}+{kill.seconds:.2f}")
        output, _ = process.communicate(timeout=MAX_WAIT_SECONDS)
        if process.returncode == ENDED:
            return _promoted(ground, json.loads(output))
        if process.returncode not in (-9, UNAVAILABLE):
            raise RuntimeError(f"the run ended with {process.returncode}: {(ground.folder / 'log').read_text()[-600:]}")
        if process.returncode == -9 and not within(lambda: not strays(ground.folder), 10.0):
            raise RuntimeError(f"left by the killed run: {strays(ground.folder)}")
    raise RuntimeError(f"the run has not ended after {STARTS} starts")


def _promoted(ground: Ground, report: dict[str, Any]) -> dict[str, Any]:
    """Return the report of the promoted run. If it was killed after its end, the next run has found no new data."""
    if report["outcome"] != "nothing-new":
        return report
    for other in json.loads(ground.training("list").communicate(timeout=MAX_WAIT_SECONDS)[0]):
        if other["outcome"] == "promoted":
            output, _ = ground.training("show", other["run"]).communicate(timeout=MAX_WAIT_SECONDS)
            run: dict[str, Any] = json.loads(output)
            return run
    raise RuntimeError("no new data, and no earlier run was promoted")


def _interrupt_registry(registry: DockerRegistry, process: subprocess.Popen[str]) -> None:
    """Stop the registry until the run has ended by itself."""
    registry.kill()
    process.wait(MAX_WAIT_SECONDS)
    registry.start()


def _hit(ground: Ground, process: subprocess.Popen[str], kill: Kill) -> bool:
    """Wait for the time of a kill; return whether the process still runs then."""
    if kill.after is not None:
        _reached(ground, process, kill.after)
    moment = time.monotonic() + kill.seconds
    within(lambda: time.monotonic() >= moment or process.poll() is not None, MAX_WAIT_SECONDS, every=0.002)
    return process.poll() is None


def _reached(ground: Ground, process: subprocess.Popen[str], step: str) -> bool:
    """Wait until a step is done; return whether the process still runs then."""
    within(lambda: step in ground.steps() or process.poll() is not None, MAX_WAIT_SECONDS, every=0.002)
    return process.poll() is None


def _reproduced(ground: Ground, version: str, result: Result) -> bool:
    process = ground.training("reproduce", version)
    output, _ = process.communicate(timeout=MAX_WAIT_SECONDS)
    if process.returncode == 0 and json.loads(output)["same"]:
        return True
    result.faults.append(f"reproduce ended with {process.returncode}: {output[-600:]}")
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
