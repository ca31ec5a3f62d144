"""The demo of automatic rollouts: a good candidate passes all steps of a plan, and a faulty one is rolled back."""

import contextlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.table import Table

from publisher.runtime.context import now_ms
from scorer.demo import flights
from scorer.demo.options import DemoOptions
from scorer.demo.run import NEW, Demo
from scorer.demo.sandbox import follow_up_commands, open_sandbox
from scorer.demo.summary import DemoSummary
from scorer.demo.view import DemoView
from scorer.rollout.controller.log_records import EntryKind, LogEntry, Outcome
from scorer.rollout.controller.log_topic import RolloutLogTopic
from scorer.rollout.controller.rollout_state import Rollout

BAD = "2.1.0"
SWAPPED = "dep_delay", "hour"
"""The two input columns that are swapped in the bad candidate, which therefore loads but returns wrong scores."""
GOOD_PLAN: dict[str, Any] = {
    "candidate": NEW,
    "steps": [
        {"compare": {"last": "1h"}},
        {"shadow": "50%", "bake": "5s"},
        {"canary": "5%", "bake": "5s"},
        {"canary": "25%", "bake": "5s"},
        {"promote": True, "watch": "5s"},
    ],
}
BAD_PLAN: dict[str, Any] = {"candidate": BAD, "steps": [{"canary": "5%", "bake": "5m"}, {"promote": True, "watch": "5m"}]}
"""A plan without the steps compare and shadow, so that the bad candidate reaches the canary step."""


@dataclass(frozen=True, slots=True)
class RolloutsSummary:
    """The summary of the scores, and the outcome of each rollout by its candidate."""

    summary: DemoSummary
    outcomes: dict[str, str]

    @property
    def clean(self) -> bool:
        """Whether the audit of the scores found no fault, and both rollouts ended as expected."""
        return self.summary.clean and self.outcomes == {NEW: Outcome.COMPLETED, BAD: Outcome.ROLLED_BACK}

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as a dict of JSON values."""
        return {**self.summary.to_dict(), "clean": self.clean, "rollouts": self.outcomes}

    def table(self) -> Table:
        """Return the summary as a table."""
        table = self.summary.table()
        for candidate, outcome in self.outcomes.items():
            table.add_row(f"rollout of {candidate}", outcome)
        return table


def demo(options: DemoOptions, view: DemoView) -> RolloutsSummary:
    """Run the demo. Raises Fatal if a step fails. Processes and files are always removed unless `options.keep` is True."""
    with open_sandbox(options, view, follow_up_commands(options, "scorer rollout status scorer.yaml")) as sandbox:
        demo = _RolloutsDemo(options, view, sandbox)
        return RolloutsSummary(demo.run(), demo.outcomes)


class _RolloutsDemo(Demo):
    """A demo in which the controller of rollouts moves the model channel."""

    outcomes: dict[str, str]

    def make_registry(self) -> None:
        super().make_registry()
        self.outcomes = {}
        package = _faulty_package(self.shell.folder)
        self.shell.run(*self.options.registry_command, "push", package.name, f"{self.options.repository}:{BAD}")
        self.view.print_result(f"{BAD} has two input columns in the wrong order, and no golden examples that would fail")

    def prepare(self, cleanup: contextlib.ExitStack) -> None:  # noqa: ARG002 - the shell ends what it starts
        self.view.step("   Start a shadow and a rollout controller")
        shadow = ("run", "scorer.yaml", "--shadow", "--workers", "1", "--set", "shadow.listen=127.0.0.1:0")
        self.processes["shadow"] = self.shell.start("shadow.log", "scorer", *shadow)
        controller = ("rollout", "run", "scorer.yaml", "--set", "rollout.listen=127.0.0.1:0")
        self.processes["controller"] = self.shell.start("controller.log", "scorer", *controller)

    def swap(self) -> int:
        """Run both rollouts to their ends, and return when the first one began, in Unix ms."""
        self.wait_for("the first flights", lambda: self.seen() >= self.options.events // 5)
        began = now_ms()
        with contextlib.closing(RolloutLogTopic(self.settings)) as topic:
            self.view.step(
                f"5. Roll out {NEW}: compare, shadow, canary for 5 % and 25 % of the keys, promote; each step is analysed"
            )
            self.run_rollout(topic, NEW, GOOD_PLAN)
            self.view.step(f"   Roll out {BAD} by a plan without a comparison")
            decided = self.run_rollout(topic, BAD, BAD_PLAN)
        if decided is not None:
            self.view.step("   Reproduce the decision from the topics")
            verification = self.shell.run("scorer", "rollout", "verify", "scorer.yaml", str(decided.seq))
            self.view.print_result(
                f"{'the same' if verification['same'] else verification['differs']}, from {verification['pairs']:,} pairs"
            )
        return began

    def run_rollout(self, topic: RolloutLogTopic, candidate: str, plan: dict[str, Any]) -> LogEntry | None:
        """Start a rollout and print its decisions until it ends.

        Returns:
            The log entry of the decision to roll back; None if there is none.
        """
        path = self.shell.folder / f"plan-{candidate}.yaml"
        path.write_text(yaml.safe_dump(plan, sort_keys=False), encoding="utf-8")
        self.view.command(f"cat {path.name}")
        for line in path.read_text(encoding="utf-8").splitlines():
            self.view.print_result(line)
        name = self.shell.run("scorer", "rollout", "start", "scorer.yaml", path.name, "--reason", "the demo")["rollout"]
        printed = 1  # the first entry is the start

        def has_ended() -> bool:
            nonlocal printed
            topic.poll(0.1)
            rollout = topic.ledger.rollouts.get(name)
            if rollout is None:
                return False
            entries = [entry for entry in rollout.log if entry.kind is not EntryKind.MOVED]
            for entry in entries[printed:]:
                self.print_decision(rollout, entry)
            printed = len(entries)
            return rollout.outcome is not None

        self.wait_for(f"the rollout of {candidate}", has_ended)
        rollout = topic.ledger.rollouts[name]
        self.outcomes[candidate] = str(rollout.outcome)
        return next((e for e in rollout.log if e.move is not None and e.move.restores is not None and e.judgement), None)

    def print_decision(self, rollout: Rollout, entry: LogEntry) -> None:
        """Print a decision and the analysis behind it."""
        if entry.kind is EntryKind.ENDED:
            self.view.print_result(f"{rollout.rivals.candidate.version}: {entry.outcome}")
            return
        if entry.kind is EntryKind.INTENDED and entry.move is not None and entry.move.restores is not None:
            self.view.print_result(f"rolled back: {'; '.join(entry.why)}")
        elif entry.kind is EntryKind.INTENDED and entry.outcome is None:
            self.view.print_result(f"next step {rollout.plan.steps[entry.step]}: {'; '.join(entry.why)}")
        else:
            self.view.print_result("; ".join(entry.why))
        for rule in (entry.judgement or {}).get("rules", []):
            ends = "to".join("?" if rule[end] is None else f" {rule[end]:+.4f} " for end in ("low", "high")).strip()
            estimate = f"{rule['estimate']:+.4f}, interval {ends}" if rule["estimate"] is not None else "unknown"
            self.view.print_result(
                f"  {rule['rule']}: {estimate}; margin {rule['margin']}, {rule['pairs']:,} pairs in {rule['cells']:,} cells"
            )


def _faulty_package(folder: Path) -> Path:
    """Write a package of the new version with two swapped input columns, and return its folder."""
    package = folder / f"flight-delay-{BAD}"
    shutil.copytree(flights.DATA / f"flight-delay-{NEW}", package, ignore=shutil.ignore_patterns("golden.jsonl"))
    path = package / "signature.json"
    signature = json.loads(path.read_text(encoding="utf-8"))
    fields = signature["inputs"][0]["fields"]
    names = [each if isinstance(each, str) else each["name"] for each in fields]
    first, second = (names.index(name) for name in SWAPPED)
    fields[first], fields[second] = fields[second], fields[first]
    path.write_text(json.dumps(signature, indent=2), encoding="utf-8")
    return package
