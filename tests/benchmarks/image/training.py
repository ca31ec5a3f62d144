"""The stage of the training image: a killed run continues in the next container, as in the next pod of a Job."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.benchmarks.findings import Finding
from tests.benchmarks.image.container import CACHE, Container, podman
from tests.chaos.training.ground import Ground
from tests.support.waiting import until

USER = 10001
RUNS, REGISTRY = "/var/lib/scorestream", "/etc/scorestream/registry"
COMMAND = ("scorer", "train", "run", "training.yaml", "--json", "--set", f"folder={RUNS}/runs")
LIMIT = "2g"
BROKEN_OFF = "search"
"""The step after which the run is killed."""


def trains(image: str, servers: str, folder: Path) -> list[Finding]:
    """Promote a version while only the volumes of runs and of the registry are writable; then find nothing new."""
    ground = Ground(servers, folder, None, 2013, champion=False)
    values = yaml.safe_load((folder / "scorer.yaml").read_text())
    values["model"]["cache"] = CACHE
    (folder / "scorer.yaml").write_text(yaml.safe_dump(values))
    for name in ("volume", "registry"):
        (folder / name).mkdir()
    _hand_over(folder)
    with _run(image, ground) as container:
        until(lambda: _steps(folder, BROKEN_OFF) or not container.running, BROKEN_OFF)
        podman("kill", container.name)
    broken_off = [name for name in ("search", "promote") if _steps(folder, name)]
    findings = [Finding("when it was killed", " ".join(broken_off), broken_off == ["search"])]
    return [*findings, *_ended(image, ground, "promoted"), *_ended(image, ground, "nothing-new")]


def _ended(image: str, ground: Ground, outcome: str) -> Iterator[Finding]:
    with _run(image, ground) as container:
        until(lambda: not container.running, "the end of the run")
        code, log_text = int(container.state["ExitCode"]), container.log_text
    ends = [json.loads(path.read_text())["result"] for path in _steps(ground.folder, "end")]
    last = ends[-1]["outcome"] if ends else log_text[-500:]
    yield Finding(f"{outcome}: exit code and end", f"{code} {last}", code == 0 and last == outcome)


def _run(image: str, ground: Ground) -> Container:
    volumes = (f"--volume={ground.folder}/volume:{RUNS}", f"--volume={ground.folder}/registry:{REGISTRY}")
    return Container(image, ground.folder, COMMAND, *volumes, f"--memory={LIMIT}", f"--memory-swap={LIMIT}")


def _steps(folder: Path, name: str) -> list[Path]:
    """Return the files of a step of every run, the oldest first."""
    return sorted(folder.glob(f"volume/runs/*/steps/{name}.json"))


def _hand_over(folder: Path) -> None:
    """Give the folder to the container's user."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, USER, USER)
