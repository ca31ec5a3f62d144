"""Score rows with a version as a scorer does: load the version in the same way, and decode events by its own signature.

Therefore the gate evaluates a champion by the scores that the champion gives in production. The champion's signature may have
other fields, dtypes or another order of fields than the challenger's. For rows of the feature log, it scores the logged inputs.
"""

import contextlib
from dataclasses import replace

import numpy as np

from model_registry.package import Package, field_sources
from model_registry.package.signature import Decision, Signature
from publisher.errors import REFUSED, Fatal
from scorer.backends.base import ModelRefused
from scorer.crash_isolation.trial_load import tried_loader
from scorer.evaluation.labelled_comparison import classes_of
from scorer.evaluation.score_events import answers
from scorer.features.log import create_reader
from scorer.features.read import FeatureLogDecoder
from scorer.settings import Settings
from training.snapshot.rows import LabelledRows
from training.snapshot.skip_counts import SkipCounts
from training.validation_gate.metrics import ModelAnswers

THRESHOLD = 0.5  # the score that decides for the second class if the signature has no decision
AT_A_TIME = 4_096  # rows scored at a time


def scored(package: Package, settings: Settings, rows: LabelledRows) -> tuple[ModelAnswers, SkipCounts]:
    """Score the rows with a version; return the answers, and the counts of rows without a score by reason.

    Raises:
        Fatal: Exit code 3 if the version cannot be loaded, if it scores no row, or if its score of an event is not one number
            (the score of the second class).
    """
    name = f"version {package.version or package.folder.name}"
    try:
        loaded = tried_loader(settings, remember=False)(package)
    except ModelRefused as error:
        raise Fatal(
            f"{name} is rejected: {error}", "promote a version that loads; `scorer check CONFIG` runs the same checks", REFUSED
        ) from None
    signature = loaded.model.signature()
    if rows.logged:
        loaded = replace(loaded, decoder=FeatureLogDecoder(signature, create_reader(settings)))
    scores = np.full(len(rows), np.nan)
    decided = classes_of(signature)
    rejected = SkipCounts()
    positive = np.zeros(len(rows), np.bool_)
    with contextlib.closing(loaded.model):
        _check(name, signature, rows)
        for start in range(0, len(rows), AT_A_TIME):
            stop = min(start + AT_A_TIME, len(rows))
            answered = answers(loaded, rows.values[start:stop], rows.parts(start, stop))
            scores[start:stop] = answered.numbers
            if decided:
                positive[start:stop] = [decision == decided[1] for decision in answered.decisions]
            for row, poison in sorted(answered.rejected.items()):
                rejected.add(poison.reason, 1, f"{rows.places.of(start + row)}: {poison}")
    if len(rows) and np.isnan(scores).all():
        cause = (
            f": {rejected}; the first {next(iter(rejected.first.values()))}"
            if rejected.first
            else ": its score is not one number"
        )
        hint = "give output.index in the signature, or promote a version that answers these events"
        raise Fatal(f"{name} scores none of {len(rows)} held-out events{cause}", hint, REFUSED)
    return ModelAnswers(scores, positive if decided else scores >= THRESHOLD), rejected


def _check(name: str, signature: Signature, rows: LabelledRows) -> None:
    """Raise Fatal (exit code 3) if the signature cannot be evaluated on these rows.

    The rows must have the keys and headers that the signature reads. A decision rule must choose between two classes by a
    threshold.
    """
    beside = next(
        (
            field
            for field in field_sources.fields_outside_value(signature)
            if field.source not in (field_sources.TIME, field_sources.VALUE)
        ),
        None,
    )
    if beside is not None and rows.beside is None and not rows.logged:
        message = f"{name} reads field {beside.name!r} from {beside.source}, but the rows were joined without it"
        raise Fatal(message, "join the rows for the signatures of both versions", REFUSED)
    if len(classes_of(signature)) not in (0, 2) or not isinstance(signature.decision, Decision | None):
        message = f"{name} decides among {', '.join(map(repr, classes_of(signature)))}, by the largest score of a row"
        hint = "two classes are judged by one number and a threshold: a decision with below and at_or_above in the signature"
        raise Fatal(message, hint, REFUSED)
