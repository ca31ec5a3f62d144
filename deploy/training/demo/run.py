"""The training demo, step by step, with the commands that a user would type.

It runs in the same sandbox as `scorer demo`: a folder with settings, and Kafka brokers.
"""

import contextlib
import json
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import yaml
from confluent_kafka.admin import NewTopic

from model_registry.oci import digests
from publisher.audit import scorer_audit as audit_topics
from publisher.runtime.context import now_ms
from scorer import topics
from scorer.demo import flights
from scorer.demo.options import DemoOptions
from scorer.demo.processes import EventFeed
from scorer.demo.run import KEPT_FLIGHTS, OLD, PARTITIONS, Demo
from scorer.demo.sandbox import MORE_FLIGHTS, DemoSandbox, open_sandbox
from scorer.demo.score_reader import ScoreReader
from scorer.demo.view import DemoView
from scorer.observability.audit_plan import audit_plan
from scorer.observability.read_output_topics import read_to_end
from scorer.settings import load
from training.demo import bulk_produce, generate_history
from training.demo.generate_history import History
from training.demo.summary import COUNTS, Summary

OUTCOMES = "flights.outcomes"
KEY = "training"
RATE = 300.0  # flights per second that are scored while a run trains
AFTER_SWAP = 500  # flights to score after the change to the new version
SIGNATURE_OF = "2.0.0"
GOING_ON = (
    "scorer train list training.yaml",
    "scorer train show training.yaml",
    "scorer train run training.yaml   # nothing new: no new label has arrived",
    "scorer status scorer.yaml",
    "scorer labels scorer.yaml --last 310d",
    f"scorer emit scorer.yaml --key '{{carrier}}-{{flight}}' --rate 200 < {MORE_FLIGHTS} &",
    "scorer rollback scorer.yaml --reason 'going back' --wait",
)


def demo(keep: bool, view: DemoView) -> Summary:
    """Run the training demo. Raises Fatal if a step fails.

    At the end or after a failure, all processes are stopped and all files are removed, unless `keep` is true.
    """
    began = time.monotonic()
    options = DemoOptions(kill=False, keep=keep)
    with ThreadPoolExecutor(1) as pool:
        flown = pool.submit(generate_history.history, now_ms())  # while Kafka starts
        with open_sandbox(options, view, GOING_ON) as where:
            return DemoTraining(options, view, where, began, flown).learn()


class DemoTraining(Demo):
    """Runs the steps of the training demo, once, in a sandbox (the folder and the brokers of the demo).

    Args:
        began: The start of the demo (monotonic seconds).
        flown: A Future with the generated records of all flights and of their outcomes.
    """

    def __init__(self, options: DemoOptions, view: DemoView, where: DemoSandbox, began: float, flown: Future[History]) -> None:
        super().__init__(options, view, where)
        self._began = began
        self._flown = flown
        self._folder = where.folder
        for name in ("training.yaml", "policy.yaml"):
            (self._folder / name).write_text(files("training.demo").joinpath(name).read_text("utf-8"), "utf-8")
        shutil.copy(flights.DATA / f"flight-delay-{SIGNATURE_OF}" / "signature.json", self._folder)
        path = self._folder / "scorer.yaml"
        scorer = yaml.safe_load(path.read_text("utf-8"))
        scorer["model"] |= {"policy": "policy.yaml", "poll_seconds": 1}
        scorer["labels"] = {"topic": OUTCOMES, "id": "flight_id", "value": "late"}
        path.write_text(yaml.safe_dump(scorer, sort_keys=False), "utf-8")
        self.settings = load(path).settings

    def learn(self) -> Summary:
        self.make_registry()
        with contextlib.ExitStack() as cleanup:
            self.start_scorers()
            reader = ScoreReader(self.settings.kafka, self.settings.output.topic, PARTITIONS, self.arrivals)
            cleanup.enter_context(contextlib.closing(reader))
            self.write_history()
            lines = map(orjson.dumps, _second_lap())
            feed = EventFeed(self.emit("emit.log", RATE), lines)
            kept_steps = self.killed_run()
            document = self.finished_run()
            swapped = self.swapped(document["version"])
            written = len(self._flown.result().events) + feed.finish()
            self.wait_for("the last scores", lambda: self.seen() >= written, quiet=True)
            if self.options.keep:
                (self._folder / MORE_FLIGHTS).write_bytes(b"".join(line + b"\n" for line in islice(lines, KEPT_FLIGHTS)))
            else:
                self.shell.stop(self.processes.pop("scorer"))
            return self.counted(document, kept_steps, swapped)

    def make_registry(self) -> None:
        self.view.step(
            f"2. flight-delay {OLD} into a model registry: built by hand, attested by hand, signed; prod points to it"
        )
        repository = self.options.repository
        package = flights.DATA / f"flight-delay-{OLD}"
        version = f"{repository}:{OLD}"
        self.shell.run("model-registry", "keygen", KEY)
        digest = self.shell.run("model-registry", "push", str(package), version)["digest"]
        (self._folder / "by-hand.json").write_text(json.dumps(_by_hand(package, digest), indent=2), "utf-8")
        attested = ("--type", "comparison", "--predicate", "by-hand.json", "--key", f"{KEY}.key")
        self.shell.run("model-registry", "attest", version, *attested)
        self.shell.run("model-registry", "sign", version, "--key", f"{KEY}.key")
        self.shell.run("model-registry", "promote", repository, "--to", OLD, "--reason", "first version")

    def start_scorers(self) -> None:
        self.view.step("3. Topics, and a scorer that loads versions that are signed and have passed a comparison")
        topics.create(self.settings.kafka, "demo", [NewTopic(OUTCOMES, PARTITIONS)])
        self.shell.run("scorer", "check", "scorer.yaml", "--create", "--partitions", str(PARTITIONS))
        self.processes["scorer"] = self.shell.start("scorer.log", "scorer", "run", "scorer.yaml", "--workers", "1")

    def write_history(self) -> None:
        """Produce ten months of flights, which the scorer scores at the same time, and their outcomes."""
        self.view.step("4. Ten months of flights, and their outcomes, reported hours later")
        history = self._flown.result()
        bulk_produce.write(self.settings.kafka, self.settings.input.topics[0], history.events)
        bulk_produce.write(self.settings.kafka, OUTCOMES, history.outcomes)
        self.view.print_result(
            f"{len(history.events):,} flights, {len(history.outcomes):,} outcomes; of {history.counts['silent']:,} flights "
            f"have no outcome, {history.counts['twice']:,} have two, {history.counts['corrected']:,} were corrected"
        )

    def killed_run(self) -> list[str]:
        """Start a training run, kill it when its search has stored a score, and return the names of its completed steps."""
        self.view.step(
            f"5. {RATE:,.0f} flights a second from now on; a run trains on the ten months, and is killed during its search"
        )
        started = self.shell.start("run.log", "scorer", "train", "run", "training.yaml")
        self.processes["the run"] = started
        self.wait_for("a score of the search", lambda: any(self._folder.glob("runs/*/search/scores/*/*.json")))
        self.shell.kill(self.processes.pop("the run"))
        done = sorted(self._folder.glob("runs/*/steps/*.json"), key=lambda path: path.stat().st_mtime_ns)
        kept_steps = [path.stem for path in done]
        scores = len(list(self._folder.glob("runs/*/search/scores/*/*.json")))
        self.view.print_result(f"completed and kept: {', '.join(kept_steps)}, and {scores} scores of the search")
        return kept_steps

    def finished_run(self) -> dict[str, Any]:
        """Run the command of the killed run again until the run ends, and return the document of the run."""
        self.view.step(
            "6. The same command again: it continues, compares the version with the champion, and promotes it if it passes"
        )
        document: dict[str, Any] = self.shell.run("scorer", "train", "run", "training.yaml")
        self.view.print_result(f"{document['outcome']}: {document['because'] or document['version']}")
        self.view.print_result(document["comparison"]["because"])
        return document

    def swapped(self, version: str) -> float:
        """Wait until the newest score of every partition is from `version`. Then wait for `AFTER_SWAP` further scores.

        Returns the seconds from the channel move until the newest score of every partition was from `version`.
        """
        (promoted,) = self._folder.glob("runs/*/steps/promote.json")
        moved_ms = int(json.loads(promoted.read_bytes())["ended_ms"])

        def everywhere() -> bool:
            newest = dict(self.arrivals.newest)
            return len(newest) == PARTITIONS and all(shown == version for shown, _, _ in newest.values())

        self.wait_for(f"every partition to show {version}", everywhere)
        seconds = max(0, now_ms() - moved_ms) / 1_000
        self.view.step(f"7. The running scorer uses {version} {seconds:.1f} s after the channel moved")
        enough = self.seen() + AFTER_SWAP
        self.wait_for("more scores of it", lambda: self.seen() >= enough)
        return seconds

    def counted(self, document: dict[str, Any], kept_steps: list[str], swapped: float) -> Summary:
        """Audit all topics from their start and return the result of the demo.

        Args:
            document: The document of the run.
            kept_steps: The steps that the run had completed before the demo killed it.
            swapped: The seconds from the channel move until every partition had a score of the new version.
        """
        self.view.step("8. Reading all topics from the start, read_committed, and counting")
        version = document["version"]
        repository = self.options.repository
        report = audit_topics.audit(self.settings.kafka, audit_plan(self.settings))
        verified = self.shell.run("model-registry", "verify", f"{repository}:{version}", "--policy", "policy.yaml")
        moves = self.shell.run("model-registry", "history", f"{repository}:prod")["moves"]
        scores = Counter(orjson.loads(m.value() or b"{}")["version"] for m in read_to_end(self.settings, "flights.scores"))
        return Summary(
            events=report.events,
            scored=report.scored,
            counts={name: getattr(report, name) for name in COUNTS} | {"missing": report.missing + report.pending},
            scores=dict(scores),
            run=document
            if self.options.keep
            else document | {"pictures": [Path(picture).name for picture in document["pictures"]]},
            kept=kept_steps,
            moves=sum(move["reason"] == f"run {document['run']}" for move in moves),
            admitted=verified["digest"] == document["digest"],
            swap_seconds=round(swapped, 3),
            seconds=round(time.monotonic() - self._began, 1),
        )


def _second_lap() -> Iterator[flights.Event]:
    """Return an endless iterator over the flights of September and October; their ids end in `-lap2`, `-lap3` and so on."""
    return islice(flights.events(), sum(1 for _ in flights.flights()), None)


def _by_hand(package: Path, digest: str) -> dict[str, Any]:
    """Return the predicate of a comparison attestation for the demo's first version, which no training run built.

    The only rule is that the AUC is better than chance. The AUC and the number of rows come from the version's model card.
    """
    card = (package / "README.md").read_text("utf-8")
    auc = float(re.findall(r"\| AUC \| ([\d.]+) \|", card)[0])
    count = int(re.findall(r"\| Measured on \| .*?: ([\d,]+) flights", card)[0].replace(",", ""))
    return {
        "run": "by hand",
        "rows": {"digest": digests.from_bytes(flights.EXTRACT.read_bytes()), "count": count},
        "metric": "auc",
        "champion": None,
        "challenger": {"version": OLD, "digest": digest, "metrics": {"auc": auc}},
        "rules": [{"name": "chance", "value": auc, "bound": 0.5, "passed": auc > 0.5}],
        "verdict": "passed" if auc > 0.5 else "refused",
    }
