"""Score the event of an answer again with the version that answered it, and compare the results."""

from dataclasses import dataclass, replace
from typing import Any

import orjson

from model_registry.package.golden_examples import agrees
from model_registry.package.signature import Signature
from publisher.errors import USAGE, Fatal
from publisher.kafka.reader import TopicReader
from scorer.dead_letters.reasons import Poison
from scorer.decoding.record_metadata import ListedMetadata
from scorer.evaluation.score_events import answers
from scorer.features.log import FeatureLog, LoggedInputs, ScoredEvent, create_reader
from scorer.features.read import FeatureLogDecoder
from scorer.features.required_log import missing_inputs, require_log
from scorer.lineage.document import DEAD_LETTER, Lineage, LineageAnswer
from scorer.models.loaded_model import LoadedModel
from scorer.settings import Settings

SCORED = "scored"  # the status of an answer with a score of a model


@dataclass(frozen=True, slots=True)
class Recomputation:
    """A recomputed score, compared with the answer.

    Attributes:
        same: Whether the recomputed score and decision equal those of the answer.
        now: The recomputed score; None if the version now dead-letters the event.
        decision: The recomputed decision; None if there is none.
        rejection: Why the version now dead-letters the event; empty if it scores the event.
        from_features: Whether the inputs were read from the feature log, not decoded from the event.
    """

    same: bool
    now: Any
    decision: str | None
    rejection: str = ""
    from_features: bool = False


def find_inputs(lineage: Lineage, settings: Settings, signature: Signature | None) -> LoggedInputs | None:
    """Return the logged inputs of the answer; None if the event must be decoded instead.

    If a feature log is configured and does not have the inputs of the answer, the reason is added to `lineage.missing`.

    Args:
        lineage: The lineage of the answer.
        settings: The settings of the scorer.
        signature: The signature of the version that answered; None if its package has none.

    Raises:
        Fatal: With exit code 2 if the inputs can be recovered neither from the feature log nor from the event, or if the
            answer has no score of the model.
    """
    answer = lineage.answer
    if answer is None:
        raise _missing(lineage)
    if (status := answer.record.get("status", SCORED)) != SCORED:
        raise Fatal(f"{lineage.place} has the status {status!r} and no score of the model", "omit --recompute", USAGE)
    requires_log = signature is not None and require_log(settings.features, [signature])
    inputs = None
    reason = "has no record of dead letters"
    if settings.features.topic is not None and answer.kind != DEAD_LETTER:
        feature_log = FeatureLog(settings, TopicReader(settings.kafka, f"{settings.name}.lineage"))
        record = answer.record
        times = (record.get(name) for name in ("event_ms", "scored_ms"))
        event_ms, scored_ms = (time if isinstance(time, int) else 0 for time in times)
        scored = ScoredEvent(*answer.source, event_ms, scored_ms, answer.digest)
        inputs, reason = complete_inputs(feature_log.find([scored]).get(scored), signature)
        unreadable = feature_log.skipped.counts[feature_log.topic]
        if inputs is None and unreadable:
            reason += f"; {unreadable:,} of its records are unreadable"
    if inputs is None and requires_log:
        raise Fatal(
            f"the inputs of {lineage.place} are not recoverable from the feature log {settings.features.topic}: it {reason}",
            "the log has only scores of models for sampled events (features.sample), until retention deletes their records",
            USAGE,
        )
    if inputs is None and settings.features.topic is not None:
        lineage.missing.append(f"the logged inputs: {settings.features.topic} {reason}")
    if inputs is None and lineage.event is None:
        raise _missing(lineage)
    return inputs


def complete_inputs(inputs: LoggedInputs | None, signature: Signature | None) -> tuple[LoggedInputs | None, str]:
    """Return (inputs, "") if the logged inputs contain all fields of the signature; otherwise (None, reason).

    Args:
        inputs: The record of the score in the feature log; None if there is no record.
        signature: The signature of the version that answered; None if its package has none.
    """
    if inputs is None:
        return None, "has no record of this score"
    missing = missing_inputs(inputs.record, signature) if signature is not None else []
    if missing:
        return None, f"has a record of this score without the inputs {', '.join(map(repr, missing))}"
    return inputs, ""


def recompute(
    lineage: Lineage, loaded: LoadedModel, tolerance: float, settings: Settings, inputs: LoggedInputs | None = None
) -> Recomputation:
    """Score the event again with the version that answered it, and compare both results.

    Two numbers may differ by `tolerance` or the signature's `batch_tolerance`, whichever is larger, because the event is now
    scored in a batch of one event.

    Args:
        lineage: The lineage of the answer.
        loaded: The version that answered.
        tolerance: The largest difference between two numbers.
        settings: The settings of the scorer.
        inputs: The logged inputs of the answer; None to decode the event.

    Raises:
        Fatal: With exit code 2 if the event is missing and there are no logged inputs.
    """
    answer = lineage.answer
    message = lineage.event if inputs is None else inputs.message
    if message is None or answer is None:
        raise _missing(lineage)
    signature = loaded.model.signature()
    tolerance = max(tolerance, signature.batch_tolerance or 0.0)
    if inputs is not None:
        loaded = replace(loaded, decoder=FeatureLogDecoder(signature, create_reader(settings)))
    results = answers(loaded, [message.value()], ListedMetadata.from_messages([message]))
    if poison := results.rejected.get(0):
        compared = compare_with(answer, poison, None, None, tolerance)
    else:
        compared = compare_with(answer, None, orjson.loads(results.scores[0]), results.decisions[0], tolerance)
    return replace(compared, from_features=inputs is not None)


def _missing(lineage: Lineage) -> Fatal:
    return Fatal(
        f"the score cannot be recomputed: {'; '.join(lineage.missing)}", "choose an event that its topic still retains", USAGE
    )


def compare_with(
    answer: LineageAnswer, poison: Poison | None, score: Any, decision: str | None, tolerance: float
) -> Recomputation:
    """Compare an answer with the new result of its event.

    The new result is the error `poison` if the version now dead-letters the event. Otherwise `poison` is None, and the new
    result is `score` and `decision`. Two scores may differ by `tolerance`.
    """
    letter = answer.kind == DEAD_LETTER
    if poison is not None:
        return Recomputation(letter and answer.record.get("reason") == poison.reason, None, None, f"{poison.reason}: {poison}")
    same = agrees(answer.record.get("score"), score, tolerance) and answer.record.get("decision") == decision
    return Recomputation(same and not letter, score, decision)
