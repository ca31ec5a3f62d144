"""`python -m tests image`: build the container image, run it, stop it, kill it, measure it, against a real broker. Minutes;
needs root and the Debian packages buildah, podman, runc and mmdebstrap.

It runs as a strict cluster would run it: read-only, as a user without name, without capabilities and without a shell.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from scorer.demo.broker.embedded import EmbeddedBroker
from tests.integration.scorer.rig import Rig
from tests.proofs.image import build, stages
from tests.proofs.image.relaying import relays
from tests.proofs.image.stages import Finding

PROGRAMS = {"buildah": "buildah", "podman": "podman", "runc": "runc", "mmdebstrap": "mmdebstrap"}
Stage = Callable[[str, str, Path], list[Finding]]
"""Takes the image, a broker's address and a folder to make."""


def on_a_rig(stage: Callable[[str, Rig], list[Finding]]) -> Stage:
    """A stage of scorers, with topics of its own and a version in production."""

    def run(image: str, bootstrap_servers: str, folder: Path) -> list[Finding]:
        rig = stages.prepared(bootstrap_servers, folder, f"{folder.name}-{time.time_ns()}")
        try:
            return stage(image, rig)
        finally:
            rig.close()

    return run


STAGES: dict[str, Stage] = {
    "scores": on_a_rig(stages.scores),
    "stops": on_a_rig(stages.stops),
    "runs-out-of-memory": on_a_rig(stages.runs_out_of_memory),
    "keeps-to-its-share": on_a_rig(stages.keeps_to_its_share),
    "relays": relays,
}
GPU_STAGES: dict[str, Stage] = {"refuses-without-a-card": on_a_rig(stages.refuses_without_a_card)}


def main() -> int:
    """Exit code 0 where every claim holds, 1 where one does not, 2 where a program is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests image", description=__doc__)
    parser.add_argument("--only", action="append", choices=list(STAGES), help="only this stage; may be repeated")
    parser.add_argument("--image", help="run this image of the local storage instead of building one")
    parser.add_argument("--extra", choices=("cpu", "gpu"), default="cpu", help="gpu: no card is needed, but 20 GB of disk")
    parser.add_argument("--json", action="store_true", help="print JSON on stdout")
    options = parser.parse_args()
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    if missing:
        build.say(f"missing: apt-get install -y --no-install-recommends {' '.join(missing)}")
        return 2
    findings: dict[str, list[Finding]] = {}
    image, findings["build"] = built(options.extra) if options.image is None else (options.image, [])
    with EmbeddedBroker() as broker, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        findings["contents"] = stages.contents(image, folder, options.extra)
        known = STAGES if options.extra == "cpu" else GPU_STAGES
        for stage in [name for name in known if not options.only or name in options.only]:
            build.say(f"== {stage}")
            findings[stage] = attempt(known[stage], image, broker.bootstrap_servers, folder / stage)
    return told(findings, options.json)


def built(extra: str) -> tuple[str, list[Finding]]:
    """The image's name, and how it was made."""
    build.base()
    made = build.image(extra)
    size = build.bytes_of(made.name) / 1e6
    limit = {"cpu": 600, "gpu": 8_000}[extra]
    return made.name, [Finding("built in", f"{made.seconds:.0f} s", True), Finding("size", f"{size:.0f} MB", size < limit)]


def attempt(stage: Stage, image: str, bootstrap_servers: str, folder: Path) -> list[Finding]:
    """A stage's findings; that it could not be ended is one too."""
    try:
        return stage(image, bootstrap_servers, folder)
    except (AssertionError, RuntimeError) as error:
        return [Finding("the stage ended early", str(error), False)]


def told(findings: dict[str, list[Finding]], as_json: bool) -> int:
    """Print everything; the exit code."""
    if as_json:
        print(json.dumps({stage: [vars(finding) for finding in found] for stage, found in findings.items()}, indent=2))
    else:
        for stage, found in findings.items():
            for finding in found:
                print(f"{'ok  ' if finding.ok else 'FAIL'} {stage:<20}{finding.what}: {finding.seen}")
    return 0 if all(finding.ok for found in findings.values() for finding in found) else 1


if __name__ == "__main__":
    sys.exit(main())
