"""The image's relay: copies between two real clusters, stopped in the middle, and everything is there once."""

import time
from pathlib import Path

from scorer.demo.broker.embedded import EmbeddedBroker
from tests.integration.relay.counting import CLEAN
from tests.integration.relay.rig import RelayRig
from tests.proofs.findings import Finding
from tests.proofs.image.container import GRACE_SECONDS, Container
from tests.proofs.image.stages import ready

COUNT = 200_000


def relays(image: str, source: str, folder: Path) -> list[Finding]:
    """SIGTERM in the middle of copying: ends within the grace period, and its successor goes on where it was."""
    folder.mkdir()
    folder.chmod(0o755)  # the container's user reads it
    with EmbeddedBroker() as far:
        rig = RelayRig((source, far.bootstrap_servers), folder, f"relay-{time.time_ns()}")
        try:
            return _stopped_and_continued(image, rig)
        finally:
            rig.close()


def _stopped_and_continued(image: str, rig: RelayRig) -> list[Finding]:
    run = ["publisher", "run", rig.path.name, "--set", "bytes_per_second=200000"]  # slow, so that there is a middle
    rig.create(rig.source)
    rig.fill(COUNT)
    with Container(image, rig.folder, run) as container:
        ready(container)
        rig.wait_copied(1)
        begin = time.monotonic()
        code = container.stop()
        took = time.monotonic() - begin
    done = rig.copied()
    with Container(image, rig.folder, run[:3]) as container:
        ready(container)
        rig.wait_copied(COUNT)
    found = rig.audit()
    return [
        Finding("exit code", str(code), code == 0),
        Finding("ended after", f"{took:.1f} s of {GRACE_SECONDS}", took < GRACE_SECONDS / 2),
        Finding("copied when it ended", f"{done} of {COUNT}", 0 < done < COUNT),
        Finding("records copied exactly once", f"{COUNT} {found if found != CLEAN else ''}", found == CLEAN),
    ]
