"""The comparison of a plan's first step: `scorer compare` in a process of its own, which the candidate may kill."""

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

AGAIN_SECONDS = 30.0
STOP_SECONDS = 10.0
KILLS = 2  # a candidate that ends the process so often is rejected


def format_duration(seconds: int) -> str:
    """As people write it: 30d, 90m."""
    unit, size = next((unit, size) for unit, size in sorted(UNITS.items(), key=lambda each: -each[1]) if seconds % size == 0)
    return f"{seconds // size}{unit}"


class ComparisonProcess:
    """`waits` says what is to be waited for. `config` and `flags` are those of the command that runs this."""

    def __init__(self, config: Path, flags: Sequence[str]) -> None:
        self._config, self._flags = config, flags
        self._process: subprocess.Popen[bytes] | None = None
        self._output: Any = None
        self._rollout = ""
        self._killed = 0
        self._again_at = 0.0
        self.waits = "compare runs"

    def look(self, rollout: str, plan: RolloutPlan, digest: str) -> tuple[CanaryDecision, str, dict[str, Any]] | None:
        """What it has come to, why, and its report; None while it runs. It is begun where none of this rollout runs."""
        if rollout != self._rollout:
            self.close()
            self._rollout, self._killed, self._again_at = rollout, 0, 0.0
        if self._process is None:
            if time.monotonic() >= self._again_at:
                self._begin(plan, digest)
            return None
        code = self._process.poll()
        if code is None:
            return None
        self._output.seek(0)
        said = self._output.read()
        self.close()
        self._again_at = time.monotonic() + AGAIN_SECONDS
        return self._ended(code, said)

    def close(self) -> None:
        """End what runs."""
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
        rules, kept = plan.rules, plan.steps[0].compare
        limits = ["--max-errors", str(rules.errors), "--max-flips", str(rules.flips), "--max-psi", str(rules.psi)]
        if rules.cost is not None:
            limits += ["--max-cost", str(rules.cost)]
        last = ["--last", format_duration(kept.last)] if kept is not None else []
        settings = [f"--set={flag}" for flag in self._flags]
        command = [sys.executable, "-m", "scorer", "compare", str(self._config), digest, *last, *limits, *settings, "--json"]
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process has ended
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._output)
        self.waits = "compare runs"

    def _ended(self, code: int, said: bytes) -> tuple[CanaryDecision, str, dict[str, Any]] | None:
        if code < 0:
            self._killed += 1
            self.waits = f"compare was ended by signal {-code}"
            return (CanaryDecision.ROLL_BACK, self.waits, {}) if self._killed >= KILLS else None
        if code == REFUSED:
            return CanaryDecision.ROLL_BACK, "the candidate is refused: see scorer compare", {}
        report = orjson.loads(said) if code in (0, FINDING) and said else {}
        if not report.get("rules"):
            self.waits = (
                "compare found no events"
                if code == FINDING
                else f"compare ended with exit code {code}: its error is in the log"
            )
            return None
        beyond = [
            f"{each['rule']} {each['value']:.4g}, the limit is {each['limit']:.4g}"
            for each in report["rules"]
            if each["beyond"]
        ]
        short = {name: value for name, value in report.items() if name not in ("largest_differences", "dead_examples")}
        if beyond:
            return CanaryDecision.ROLL_BACK, f"compare: {'; '.join(beyond)}", short
        return CanaryDecision.PROMOTE, f"compare: {report['events']:,} events, within every limit", short
