"""Run the comparison step of a plan: `scorer compare` in a process of its own, because the candidate may crash that process."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from publisher.errors import FINDING, REFUSED
from publisher.runtime.time_range import UNITS
from scorer.rollout.canary_analysis.verdict import CanaryDecision
from scorer.rollout.controller.plan import RolloutPlan

RETRY_SECONDS = 30.0
STOP_SECONDS = 10.0
KILLS = 2  # a candidate is rejected when its comparison was ended by a signal this often


def format_duration(seconds: int) -> str:
    """Format a duration in the largest unit that divides it: 30d, 90m."""
    unit, size = next((unit, size) for unit, size in sorted(UNITS.items(), key=lambda item: -item[1]) if seconds % size == 0)
    return f"{seconds // size}{unit}"


class ComparisonProcess:
    """The `scorer compare` process of a rollout's comparison step.

    Attributes:
        waiting_for: The reason why the step has no result yet.

    Args:
        config: The configuration file of the controller.
        flags: The settings flags of the controller.
    """

    def __init__(self, config: Path, flags: Sequence[str]) -> None:
        self._config = config
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None
        self._output: Any = None
        self._rollout = ""
        self._killed = 0
        self._retry_at = 0.0
        self.waiting_for = "compare runs"

    def poll(self, rollout: str, plan: RolloutPlan, digest: str) -> tuple[CanaryDecision, str, dict[str, Any]] | None:
        """Return the decision, the reason and the report of the comparison; None while there is no result.

        The process is started if none runs for the rollout with the id `rollout`. `digest` identifies the candidate.
        A comparison without a result is repeated after RETRY_SECONDS.
        """
        if rollout != self._rollout:
            self.close()
            self._rollout = rollout
            self._killed = 0
            self._retry_at = 0.0
        if self._process is None:
            if time.monotonic() >= self._retry_at:
                self._begin(plan, digest)
            return None
        code = self._process.poll()
        if code is None:
            return None
        self._output.seek(0)
        output = self._output.read()
        self.close()
        self._retry_at = time.monotonic() + RETRY_SECONDS
        return self._ended(code, output)

    def close(self) -> None:
        """Terminate the process."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._output.close()
        self._process = None

    def _begin(self, plan: RolloutPlan, digest: str) -> None:
        rules = plan.rules
        options = plan.steps[0].compare
        limits = ["--max-errors", str(rules.errors), "--max-flips", str(rules.flips), "--max-psi", str(rules.psi)]
        if rules.cost is not None:
            limits += ["--max-cost", str(rules.cost)]
        window = ["--last", format_duration(options.last)] if options is not None else []
        settings = [f"--set={flag}" for flag in self._flags]
        command = [sys.executable, "-m", "scorer", "compare", str(self._config), digest, *window, *limits, *settings, "--json"]
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process has ended
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._output)
        self.waiting_for = "compare runs"

    def _ended(self, code: int, output: bytes) -> tuple[CanaryDecision, str, dict[str, Any]] | None:
        if code < 0:
            self._killed += 1
            self.waiting_for = f"compare was ended by signal {-code}"
            return (CanaryDecision.ROLL_BACK, self.waiting_for, {}) if self._killed >= KILLS else None
        if code == REFUSED:
            return CanaryDecision.ROLL_BACK, "the candidate is refused: see scorer compare", {}
        report = orjson.loads(output) if code in (0, FINDING) and output else {}
        if not report.get("rules"):
            self.waiting_for = (
                "compare found no events"
                if code == FINDING
                else f"compare ended with exit code {code}: its error is in the log"
            )
            return None
        beyond = [
            f"{rule['rule']} {rule['value']:.4g}, the limit is {rule['limit']:.4g}"
            for rule in report["rules"]
            if rule["beyond"]
        ]
        summary = {name: value for name, value in report.items() if name not in ("largest_differences", "dead_examples")}
        if beyond:
            return CanaryDecision.ROLL_BACK, f"compare: {'; '.join(beyond)}", summary
        return CanaryDecision.PROMOTE, f"compare: {report['events']:,} events, within every limit", summary
