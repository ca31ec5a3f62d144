"""`python -m tests image`: build the container image, run it, stop it, kill it, measure it, against a real broker. Minutes;
needs root and the Debian packages buildah, podman, runc and mmdebstrap.

It runs as in a strict cluster: read-only, as a user without a name, without capabilities and without a shell.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from scorer.demo.broker.embedded import EmbeddedBroker
from tests.benchmarks.findings import Finding, report_findings
from tests.benchmarks.image import build, stages, training
from tests.integration.scorer.rig import Rig

PROGRAMS = ("buildah", "podman", "runc", "mmdebstrap")
"""The required programs; each is in the Debian package of its name."""
Stage = Callable[[str, str, Path], list[Finding]]
"""Takes the image, a broker's address and the path of a new folder."""


def on_a_rig(stage: Callable[[str, Rig], list[Finding]]) -> Stage:
    """Return a stage of scorers with its own topics and a version in production."""

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
    "relays": stages.relays,
}
GPU_STAGES: dict[str, Stage] = {"refuses-without-a-card": on_a_rig(stages.refuses_without_a_card)}
TRAINING_STAGES: dict[str, Stage] = {"trains": training.trains}
BYTES = {"cpu": 600e6, "gpu": 8e9, "training": 1.2e9, "network": 8e9}
"""The limit of the image size in bytes, by list of requirements."""


def main() -> int:
    """Return exit code 0 if every claim holds, 1 if one does not, 2 if a program is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests image", description=__doc__)
    parser.add_argument("--only", action="append", choices=[*STAGES, *TRAINING_STAGES], help="only this stage; may be repeated")
    parser.add_argument("--image", help="run this image of the local storage instead of building one")
    parser.add_argument(
        "--extra", choices=list(BYTES), default="cpu", help="gpu, network: no card is needed, but 20 GB of disk"
    )
    options = parser.parse_args()
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        build.print_progress(f"missing: apt-get install -y --no-install-recommends {' '.join(missing)}")
        return 2
    return report_findings(proved(options))


def proved(options: argparse.Namespace) -> Iterator[Finding]:
    """Yield the findings of the build and of every requested stage."""
    if options.image is None:
        build.base()
        began = time.monotonic()
        options.image = build.image(options.extra)
        yield Finding("built in", f"{time.monotonic() - began:.0f} s", True)
        size = build.bytes_of(options.image)
        yield Finding("size", f"{size / 1e6:.0f} MB", size < BYTES[options.extra])
    with EmbeddedBroker() as broker, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield from stages.contents(options.image, folder, options.extra)
        trains = options.extra in build.TRAINING
        available = TRAINING_STAGES if trains else GPU_STAGES if options.extra == "gpu" else STAGES
        for stage in [name for name in available if not options.only or name in options.only]:
            build.print_progress(f"== {stage}")
            for finding in attempt(available[stage], options.image, broker.bootstrap_servers, folder / stage):
                yield finding._replace(claim=f"{stage}, {finding.claim}")


def attempt(stage: Stage, image: str, bootstrap_servers: str, folder: Path) -> list[Finding]:
    """Run a stage; return its findings, with one more if it fails."""
    try:
        return stage(image, bootstrap_servers, folder)
    except (AssertionError, RuntimeError) as error:
        return [Finding("the stage ended early", str(error), False)]


if __name__ == "__main__":
    sys.exit(main())
