"""One batch through fakes that raise: only the failing events are dead letters, and the others are scored in order."""

import logging
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.errors import Aborted, Fatal, Retriable
from publisher.runtime.context import Clock, Context
from publisher.runtime.watchdog import BROKEN
from scorer.backends.base import InferenceFailed, ModelBroken
from scorer.decoding.batch import Batch
from scorer.decoding.types import Decoded
from scorer.models.servable import Servable
from scorer.settings import Settings
from scorer.worker.encode import TargetTopic
from scorer.worker.score_batch import BatchScorer, ScoredBatch

STAGES = ("decode", "infer", "encode")
RAISED: dict[str, type[Exception]] = {"decode": ValueError, "infer": InferenceFailed, "encode": UnicodeError}


class Fake:
    """A version that decodes, scores and encodes a value to itself, and raises the configured error at the configured stage."""

    def __init__(self, errors: dict[bytes, tuple[str, Exception]]) -> None:
        self.errors = errors
        self.provenance = dict.fromkeys(("model", "version", "digest", "role", "region"), "x")
        self.label = "model:1@x"
        self.loaded = self.encoder = self.decoder = self
        self.broken = False

    def _pass(self, stage: str, values: Sequence[Any]) -> None:
        for value in values:
            at, error = self.errors.get(value, ("", None))
            if at == stage and error is not None:
                raise error

    def decode(self, values: Sequence[bytes | None], _: object) -> Decoded:
        self._pass("decode", values)
        tensor = np.array([[value] for value in values], object).reshape(len(values), 1)
        return Decoded(list(range(len(values))), [str(value) for value in values], {"x": tensor}, {})

    def score(self, tensors: dict[str, Any], _: Any) -> Any:
        values = tensors["x"][:, 0].tolist()
        self._pass("infer", values)
        return SimpleNamespace(
            encoded=lambda: values, decisions=lambda: [None] * len(values), finite=lambda: np.ones(len(values), bool)
        )

    def check_control_row(self) -> None:
        if self.broken:
            raise ModelBroken(InferenceFailed("no"))

    def encode(self, _ids: Any, scores: list[bytes], *_: Any) -> list[bytes]:
        self._pass("encode", scores)
        return scores


def settings(model: dict[str, Any] | None = None) -> Settings:
    names = {"input": {"topics": ["in"]}, "output": {"topic": "out"}, "dead_letter": {"topic": "dead"}}
    return Settings.model_validate(
        {"name": "n", "kafka": {"bootstrap_servers": "b"}, "model": model or {"source": "oci:./r/m"}, "replica": "a", **names}
    )


def batch(values: Sequence[bytes], headers: Any = None) -> Batch:
    count = len(values)
    rows = list(range(count))
    return Batch(["in"] * count, [0] * count, rows, [None] * count, list(values), [1] * count, headers or [None] * count)


def scored(events: Batch, fake: Fake) -> ScoredBatch:
    scoring = BatchScorer(settings(), TargetTopic("out", 1, 1_000_000), TargetTopic("dead", 1, 1_000_000))
    return scoring.score(events, cast(Servable, fake), Context(Clock(lambda: 1)))


@given(
    st.integers(1, 70).flatmap(lambda n: st.dictionaries(st.integers(0, n - 1), st.sampled_from(STAGES)).map(lambda d: (n, d)))
)
def test_any_error_affects_only_the_failing_events(case: tuple[int, dict[int, str]]) -> None:
    count, failing_stages = case
    values = [b"%d" % number for number in range(count)]
    result = scored(batch(values), Fake({values[row]: (stage, RAISED[stage]("no")) for row, stage in failing_stages.items()}))
    assert [record[1] for record in result.records] == values
    assert [record[0] for record in result.records] == ["dead" if row in failing_stages else "out" for row in range(count)]
    failed = sum(stage == "infer" for stage in failing_stages.values())
    assert +result.reasons == +Counter({"inference-failed": failed, "internal-error": len(failing_stages) - failed})
    assert +result.outcomes == +Counter({"scored": count - len(failing_stages), "dead": len(failing_stages)})


def test_the_dead_letter_names_the_exception_and_its_place_and_the_log_has_it_once(caplog: pytest.LogCaptureFixture) -> None:
    values = [b"%d" % number for number in range(9)]
    fake = Fake({values[2]: ("encode", KeyError("k" * 5_000)), values[7]: ("encode", KeyError("other"))})
    with caplog.at_level(logging.ERROR):
        result = scored(batch(values), fake)
    headers = [dict(record[5] or []) for record in result.records if record[0] == "dead"]
    assert [
        cast(bytes, dead_letter["dead.error"]).startswith(b"KeyError at scorer/worker/encode.py:") for dead_letter in headers
    ] == [
        True,
        True,
    ]
    assert max(len(cast(bytes, dead_letter["dead.error"])) for dead_letter in headers) < 1_000
    assert [record.exc_info is not None for record in caplog.records] == [True]


@pytest.mark.parametrize("error", [Retriable("again"), Aborted("aborted"), Fatal("fatal")])
def test_an_unavailable_dependency_fails_no_event(error: Exception) -> None:
    with pytest.raises(type(error)):
        scored(batch([b"1", b"2"]), Fake({b"2": ("infer", error)}))


def test_a_model_without_answers_fails_no_event() -> None:
    fake = Fake({b"2": ("infer", InferenceFailed("no"))})
    fake.broken = True
    with pytest.raises(ModelBroken, match="answered when it was loaded: no") as result:
        scored(batch([b"1", b"2"]), fake)
    assert result.value.exit_code == BROKEN


def test_an_event_that_is_given_up_is_not_read() -> None:
    scoring = BatchScorer(settings(), TargetTopic("out", 1, 1_000_000), TargetTopic("dead", 1, 1_000_000))
    unreadable: Any = [[("deadline", object())]]
    result = scoring.give_up(
        batch([b"1"], unreadable), cast(Servable, Fake({})), Context(Clock(lambda: 1)), "was ended by SIGSEGV"
    )
    assert result.reasons == {"crashes-scorer": 1}
    assert (result.records[0][5] or [])[0] == unreadable[0][0]


def test_an_event_whose_id_is_not_utf8_is_a_dead_letter() -> None:
    headers: Any = [[("ce_id", b"a\xff")], [("ce_id", b"a\xfe")], [("ce_id", b"")], None, [("x-origin", b"\xff")]]
    result = scored(batch([b"1", b"2", b"3", b"4", b"5"], headers), Fake({}))
    assert [record[0] for record in result.records] == ["dead", "dead", "out", "out", "dead"]
    assert result.reasons == {"not-utf8": 3}
    assert (
        dict(result.records[0][5] or [])["dead.error"] == b"header ce_id is b'a\\xff', which is not UTF-8; write text in UTF-8"
    )


def test_the_feature_log_uses_no_more_partitions_than_its_recreated_topic_has() -> None:
    scoring = BatchScorer(settings(), TargetTopic("out", 4, 9_000), TargetTopic("dead", 4, 8_000), TargetTopic("log", 4, 7_000))
    assert scoring.largest_request == 7_000
    assert not scoring.reduce_partitions(TargetTopic("out", 4, 1), TargetTopic("dead", 4, 1), TargetTopic("log", 6, 1))
    assert scoring.reduce_partitions(TargetTopic("out", 4, 1), TargetTopic("dead", 4, 1), TargetTopic("log", 3, 1))
    assert scoring.pipeline.features is not None
    assert scoring.pipeline.features.partitions == 3
