"""A loop over a scripted group, for its unit tests. It supports no claim about delivery."""

import math
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

from model_registry.channels.channel import Resolution
from publisher.transactions.counters import Counters
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.consumer.start_offsets import AnswerStartOffsets
from scorer.crash_isolation.quarantine import Quarantine
from scorer.models.latency_model import LatencyModel
from scorer.models.version_manager import VersionManager
from scorer.observability.liveness import WorkerProgress
from scorer.observability.metrics import Metrics
from scorer.observability.traces import Traces
from scorer.settings import Settings
from scorer.tables.tables import Tables
from scorer.worker.encode import TargetTopic
from scorer.worker.score_batch import BatchScorer, ScoredBatch
from scorer.worker.worker import Worker, unknown_targets
from tests.unit.scorer.consumer.group import TOPIC, Group

SETTINGS = Settings.model_validate(
    {
        "name": "flights",
        "replica": "a",
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "input": {"topics": [TOPIC]},
        "output": {"topic": "flights.scores"},
        "model": {"source": "oci:./registry/model"},
    }
)
PARTITION = TOPIC, 0
ORIGIN = {"model": "m", "version": "1", "digest": "d", "role": "champion"}
SCORED_BY_US = OffsetMetadata(SETTINGS.owner, 1, "1", "d", topic_id="one")


class Looped:
    """A loop between a session and a group with one partition, at offset 7."""

    def __init__(
        self,
        mark: OffsetMetadata = SCORED_BY_US,
        answers: AnswerStartOffsets | None = None,
        settings: Settings = SETTINGS,
        targets: Callable[[], tuple[TargetTopic, TargetTopic] | None] = unknown_targets,
        tables: Tables | None = None,
    ) -> None:
        self.group = Group()
        self.group.committed[PARTITION] = 7, mark
        self.group.answers = answers
        self.session = self.group.session
        self.session.counters = Counters()
        loaded = SimpleNamespace(cost=LatencyModel(), inference=LatencyModel(), model=SimpleNamespace(device="cpu"))
        self.champion: Any = SimpleNamespace(
            loaded=loaded,
            encoder=SimpleNamespace(provenance=ORIGIN),
            resolution=Resolution("d", "1", 1),
            label="m:1",
            reason="faster",
        )
        serving: dict[str, Any] = {"serving": {"champion": self.champion}, "champion": self.champion, "canary": None}
        serving |= {"trusted_revision": math.inf}
        self.versions = create_autospec(VersionManager, instance=True, **serving)
        self.versions.serve_aspired.return_value = False
        self.versions.registry_revision.return_value = math.inf
        self.scoring = create_autospec(BatchScorer, instance=True)
        self.scoring.output = self.scoring.dead = TargetTopic("out", 1, 1_000_000)
        self.scoring.largest_request = 1_000_000
        self.scoring.score.side_effect = lambda batch, *_: ScoredBatch(
            [("out", b"1", None, 0, 1, None)] * len(batch), outcomes=Counter(scored=len(batch))
        )
        self.quarantine = create_autospec(Quarantine, instance=True)
        self.quarantine.limit_events.side_effect = lambda events: events
        self.metrics = Metrics(self.session.counters, settings.model)
        self.progress = WorkerProgress(0.0)
        self.loop = Worker(
            settings,
            intake=self.group.intake,
            session=self.session,
            versions=self.versions,
            scorer=self.scoring,
            quarantine=self.quarantine,
            metrics=self.metrics,
            progress=self.progress,
            traces=Traces(),
            targets=targets,
            tables=tables,
        )
        self.group.assign(0, claimed=False)

    def run(self, steps: int) -> bool:
        """Run this number of steps, then stop. Return whether every score is committed."""
        remaining = iter(range(steps))
        return self.loop.run(lambda: next(remaining, None) is None, lambda: None)

    def published(self) -> list[tuple[list[str], list[tuple[int, str]]]]:
        """Return for each publish the topics of its records, and the offset and owner of each position."""
        calls = [call.args for call in self.session.publish.call_args_list]
        return [
            ([record[0] for record in records], [(p.offset, OffsetMetadata.decode(p.metadata).owner) for p in offsets])
            for records, offsets, _ in calls
        ]
