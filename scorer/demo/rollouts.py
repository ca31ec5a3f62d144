"""The demo with rollouts that act: a good candidate goes through all steps of a plan, and one that was built wrong comes back
by itself, with the evidence."""

import contextlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.table import Table

from scorer.demo import flights
from scorer.demo.options import DemoOptions
from scorer.demo.run import NEW, Demo
from scorer.demo.sandbox import follow_up_commands, open_sandbox
from scorer.demo.score_reader import now_ms
from scorer.demo.summary import DemoSummary
from scorer.demo.view import DemoView
from scorer.rollout.controller.event_log import Rollout
from scorer.rollout.controller.log_records import EntryKind, LogEntry, Outcome
from scorer.rollout.controller.log_topic import RolloutLogTopic

BAD = "2.1.0"
SWAPPED = "dep_delay", "hour"
"""Columns of the bad candidate that stand in each other's place: it loads, and answers nonsense."""
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
"""In a hurry: nothing is compared before."""


@dataclass(frozen=True, slots=True)
class Rollouts:
    """What the score topic holds, and how each rollout ended."""

    summary: DemoSummary
    outcomes: dict[str, str]

    @property
    def clean(self) -> bool:
        return self.summary.clean and self.outcomes == {NEW: Outcome.COMPLETED, BAD: Outcome.ROLLED_BACK}

    def to_dict(self) -> dict[str, Any]:
        return {**self.summary.to_dict(), "clean": self.clean, "rollouts": self.outcomes}

    def table(self) -> Table:
        shown = self.summary.table()
        for candidate, outcome in self.outcomes.items():
            shown.add_row(f"rollout of {candidate}", outcome)
        return shown


def demo(options: DemoOptions, view: DemoView) -> Rollouts:
    """Run it all. Raises Fatal where a step fails; what was started is stopped and removed, whatever happens."""
    with open_sandbox(options, view, follow_up_commands(options, "scorer rollout status scorer.yaml")) as where:
        played = _Rollouts(options, view, where)
        return Rollouts(played.play(), played.outcomes)


class _Rollouts(Demo):
    """The demo in which a controller moves the channel."""

    outcomes: dict[str, str]

    def make_registry(self) -> None:
        super().make_registry()
        self.outcomes = {}
        package = _built_wrong(self.shell.folder)
        self.shell.run(*self.options.registry_command, "push", package.name, f"{self.options.repository}:{BAD}")
        self.view.say(f"{BAD} has two columns of its input swapped, and no golden examples that would tell")

    def prepare(self, cleanup: contextlib.ExitStack) -> None:  # noqa: ARG002 - the shell ends what it starts
        self.view.step("   Then a shadow, which scores unseen, and a controller of rollouts")
        shadow = ("run", "scorer.yaml", "--shadow", "--workers", "1", "--set", "shadow.listen=127.0.0.1:0")
        self.processes["shadow"] = self.shell.start("shadow.log", "scorer", *shadow)
        controller = ("rollout", "run", "scorer.yaml", "--set", "rollout.listen=127.0.0.1:0")
        self.processes["controller"] = self.shell.start("controller.log", "scorer", *controller)

    def swap(self) -> int:
        """Both rollouts; done when the second has ended."""
        self.wait_for("the first flights", lambda: self.seen() >= self.options.events // 5)
        began = now_ms()
        with contextlib.closing(RolloutLogTopic(self.settings)) as topic:
            self.view.step(f"5. A rollout of {NEW}: compared, unseen, for 5 %, 25 % and all of the keys, judged at each step")
            self.rolled_out(topic, NEW, GOOD_PLAN)
            self.view.step(f"   And one of {BAD}, by somebody in a hurry")
            decided = self.rolled_out(topic, BAD, BAD_PLAN)
        if decided is not None:
            self.view.step("   Did it have to be? The same decision once more, from the topics")
            found = self.shell.run("scorer", "rollout", "verify", "scorer.yaml", str(decided.seq))
            self.view.say(f"{'the same' if found['same'] else found['differs']}, from {found['pairs']:,} pairs")
        return began

    def rolled_out(self, topic: RolloutLogTopic, candidate: str, plan: dict[str, Any]) -> LogEntry | None:
        """Start a rollout, and tell what is decided until it has ended; the decision that rolled it back, if one did."""
        path = self.shell.folder / f"plan-{candidate}.yaml"
        path.write_text(yaml.safe_dump(plan, sort_keys=False), encoding="utf-8")
        self.view.command(f"cat {path.name}")
        for line in path.read_text(encoding="utf-8").splitlines():
            self.view.say(line)
        name = self.shell.run("scorer", "rollout", "start", "scorer.yaml", path.name, "--reason", "the demo")["rollout"]
        told = 1  # its start

        def has_ended() -> bool:
            nonlocal told
            topic.look(0.1)
            rollout = topic.ledger.rollouts.get(name)
            if rollout is None:
                return False
            found = [entry for entry in rollout.log if entry.kind is not EntryKind.MOVED]
            for entry in found[told:]:
                self.tell(rollout, entry)
            told = len(found)
            return rollout.outcome is not None

        self.wait_for(f"the rollout of {candidate}", has_ended)
        rollout = topic.ledger.rollouts[name]
        self.outcomes[candidate] = str(rollout.outcome)
        return next((e for e in rollout.log if e.move is not None and e.move.restores is not None and e.judgement), None)

    def tell(self, rollout: Rollout, entry: LogEntry) -> None:
        """A decision, and what it rests on."""
        if entry.kind is EntryKind.ENDED:
            self.view.say(f"{rollout.rivals.candidate.version}: {entry.outcome}")
            return
        if entry.kind is EntryKind.INTENDED and entry.move is not None and entry.move.restores is not None:
            self.view.say(f"rolled back: {'; '.join(entry.why)}")
        elif entry.kind is EntryKind.INTENDED and entry.outcome is None:
            self.view.say(f"on to {rollout.plan.steps[entry.step]}: {'; '.join(entry.why)}")
        else:
            self.view.say("; ".join(entry.why))
        for rule in (entry.judgement or {}).get("rules", []):
            ends = "to".join("?" if rule[end] is None else f" {rule[end]:+.4f} " for end in ("low", "high")).strip()
            said = f"{rule['estimate']:+.4f}, surely {ends}" if rule["estimate"] is not None else "nothing known"
            self.view.say(
                f"  {rule['rule']}: {said}; margin {rule['margin']}, {rule['pairs']:,} pairs in {rule['cells']:,} cells"
            )


def _built_wrong(folder: Path) -> Path:
    """The package of the new version, but with two of its columns swapped, as a slip in training code does."""
    package = folder / f"flight-delay-{BAD}"
    shutil.copytree(flights.DATA / f"flight-delay-{NEW}", package, ignore=shutil.ignore_patterns("golden.jsonl"))
    path = package / "signature.json"
    signature = json.loads(path.read_text(encoding="utf-8"))
    fields = signature["inputs"][0]["fields"]
    names = [each if isinstance(each, str) else each["name"] for each in fields]
    one, other = (names.index(name) for name in SWAPPED)
    fields[one], fields[other] = fields[other], fields[one]
    path.write_text(json.dumps(signature, indent=2), encoding="utf-8")
    return package
