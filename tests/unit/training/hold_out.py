"""Hold-outs of simulated events: their outcomes, and versions that predict them well or badly."""

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.snapshot.rows import LabelledRows, Places
from training.snapshot.target import Target
from training.validation_gate.inputs import VerdictEvidence, Version
from training.validation_gate.metrics import ModelAnswers, decide

DAY = 86_400_000
CLASSES = ("on time", "late")
TARGET = Target("binary", CLASSES)
DIGESTS = {"champion": f"sha256:{'a' * 64}", "challenger": f"sha256:{'b' * 64}"}


def rows(outcomes: NDArray[Any], time_ms: NDArray[np.int64], values: list[bytes] | None = None) -> LabelledRows:
    """Return events of one partition with these outcomes (B,) and times."""
    count = len(outcomes)
    places = Places(("in",), np.zeros(count, np.int16), np.zeros(count, np.int32), np.arange(count), time_ms)
    return LabelledRows({}, outcomes.astype(TARGET.dtype), places, values or [b""] * count, target=TARGET)


def feature_record(**inputs: Any) -> bytes:
    """Return a record of the feature log with these inputs."""
    head = {"id": "e1", "source": {"topic": "in", "partition": 0, "offset": 7}, "event_ms": 1, "scored_ms": 2}
    return json.dumps({**head, "version": "v1", "digest": DIGESTS["champion"], "inputs": inputs}).encode()


class HoldOut:
    """Events over several days, with a given number each day; a quarter of them is late."""

    def __init__(self, days: int = 14, a_day: int = 4_000, seed: int = 1) -> None:
        self.random = np.random.default_rng(seed)
        self.count = days * a_day
        self.times = np.repeat(np.arange(days), a_day) * DAY + self.random.integers(0, DAY, self.count)
        self.true = self.random.random(self.count) < 0.25
        self.hidden = self.random.normal(size=self.count) + 1.5 * self.true

    def scores(self, noise: float) -> NDArray[np.float64]:
        """Return the probabilities of a version that knows the outcomes with this noise."""
        observed = self.hidden + noise * self.random.normal(size=self.count)
        return np.asarray(1 / (1 + np.exp(2.2 - 1.5 * observed)))

    def version(self, name: str, scores: NDArray[np.float64]) -> Version:
        return Version(name, DIGESTS[name], ModelAnswers(scores, decide(TARGET, scores)), 7 if name == "champion" else None)

    def evidence(
        self, champion: NDArray[np.float64] | None, challenger: NDArray[np.float64], **changes: Any
    ) -> VerdictEvidence:
        stated: dict[str, Any] = {
            "run": "0123456789ab",
            "rows": rows(self.true, self.times),
            "mature_times": self.times,
            "challenger": self.version("challenger", challenger),
            "champion": None if champion is None else self.version("champion", champion),
            "leaked": None if champion is None else 0,
        }
        return VerdictEvidence(**stated | changes)
