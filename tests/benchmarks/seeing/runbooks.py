"""Run the commands of the runbooks against a live scorer and relay, with a `kubectl` that runs the commands of pods here.

This `kubectl` knows the verbs that the pages use, and rejects others. The names of the example (pods, registry, brokers) are
replaced. `tests/integration/security/test_shipped.py` runs the same commands with the rights as shipped.
"""

import os
import stat
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.seeing.fleet import RELAY, Fleet
from tests.support import runbooks

NO_ROLLOUT = 2
"""The exit code of `scorer rollout status` before the first rollout."""
KUBECTL = """#!/bin/sh
# kubectl [-n NAMESPACE | --context NAME -n NAMESPACE] VERB ...
while [ "$1" = -n ] || [ "$1" = --context ]; do shift 2; done
verb=$1
shift
case $verb in
    exec) while [ "$1" != -- ]; do shift; done; shift; exec "$@" ;;
    get) [ "$1" != --raw ] || exec "$PYTHON" -c '
import os, sys, urllib.error, urllib.request
pod, _, path = sys.argv[1].partition("/pods/")[2].partition("/proxy")
address = os.environ["AT_" + pod.partition(":")[0].replace("-", "_")]
try:
    print(urllib.request.urlopen(address + path, timeout=10).read().decode())
except urllib.error.HTTPError as error:
    print(error.read().decode())
' "$2" ;;
    logs|describe|delete|patch|rollout|cordon|top|create|scale|annotate) : ;;
    *) echo "no such verb: $verb" >&2; exit 64 ;;
esac
"""


def lines(page: str) -> list[str]:
    """Return the commands of a page. A command over several lines is one command."""
    return runbooks.lines(runbooks.PAGES / f"{page}.md")


def pages() -> list[str]:
    """Return the names of the alerts' pages. `tests.chaos.relay.failover` plays `region_failover.md`."""
    return sorted(path.stem for path in runbooks.PAGES.glob("[A-Z]*.md"))


class Reader:
    """Runs the commands of the pages, each command once."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self._fleet = fleet
        self._folder = folder
        self._executed: set[str] = set()
        (folder / "bin").mkdir(parents=True)
        kubectl = folder / "bin" / "kubectl"
        kubectl.write_text(KUBECTL)
        kubectl.chmod(kubectl.stat().st_mode | stat.S_IXUSR)
        (folder / "scorer.yaml").symlink_to(fleet.rig.path)
        (folder / "publisher.yaml").symlink_to(fleet.relay.path)
        (folder / "registry").symlink_to(fleet.rig.folder / "registry")

    def run(self, line: str) -> str | None:
        """Run a command unless it has been run; return the problem, or None."""
        if line in self._executed:
            return None
        self._executed.add(line)
        if " rollback " in line:
            self._fleet.rig.promote("2.0.0")  # each rollback returns from the serving version to the previous one
        completed = subprocess.run(
            ["sh", "-c", self._localized(line)],
            cwd=self._folder,
            env=os.environ | self._environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        if completed.returncode == 0 or (completed.returncode == NO_ROLLOUT and "scorer rollout status" in line):
            return None
        return f"{line}\n  ended with {completed.returncode}: {completed.stderr.strip()[-500:]}"

    def _localized(self, line: str) -> str:
        line = line.replace("registry.example.com/team/flight-delay", "oci:./registry/model")
        line = line.replace("flight-delay-relay-us-east-0", RELAY).replace("pods/flight-delay-scorer-", "pods/scorer-")
        return line.replace("kafka.example.com:9094", self._fleet.broker.bootstrap_servers)

    def _environment(self) -> dict[str, str]:
        addresses = {f"AT_{pod.replace('-', '_')}": address for pod, address in self._fleet.addresses.items()}
        assert f"AT_{RELAY.replace('-', '_')}" in addresses, "the relay runs"
        path = f"{self._folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**addresses, "PATH": path, "PYTHON": sys.executable}
