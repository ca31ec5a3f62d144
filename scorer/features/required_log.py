"""Check whether the inputs of past scores can be recovered.

A joined field comes from a table. A table's topic is compacted, so its current rows may differ from the rows at the time of a
score. Therefore past values of joined fields are only in the feature log, and no command reads tables to score an event again.
"""

from collections.abc import Sequence

from model_registry.package import field_sources
from model_registry.package.signature import Signature
from publisher.errors import USAGE, Fatal
from scorer.features.read import FeatureRecord
from scorer.settings.features import FeatureLogSettings


def joined_names(signature: Signature) -> list[str]:
    """Return the names of the fields that come from tables, in the order of the signature."""
    return [field.name for field in signature.fields if field_sources.table_of(field) is not None]


def require_log(features: FeatureLogSettings, signatures: Sequence[Signature]) -> bool:
    """Return whether the feature log must be read, because at least one of these versions has joined fields.

    Raises:
        Fatal: With exit code 2 if the feature log must be read, but none is configured, or it lacks inputs of a version.
    """
    joined = [signature for signature in signatures if joined_names(signature)]
    if not joined:
        return False
    if features.topic is None:
        names = ", ".join(dict.fromkeys(repr(name) for signature in joined for name in joined_names(signature)))
        raise Fatal(
            f"the values of the joined fields {names} at the time of a score are not recoverable without a feature log",
            "set features.topic, so that the scorers log the inputs of each score from then on",
            USAGE,
        )
    for signature in signatures:
        check_fields(features, signature)
    return True


def missing_inputs(record: FeatureRecord, signature: Signature) -> list[str]:
    """Return the names of the signature's fields that a feature record does not hold, in the order of the signature."""
    return [field.name for field in signature.fields if field.name not in record.inputs]


def excluded_fields(features: FeatureLogSettings, signature: Signature) -> list[str]:
    """Return the names of the signature's fields that `features.fields` does not hold, in the order of the signature."""
    return [] if features.fields == "all" else [field.name for field in signature.fields if field.name not in features.fields]


def check_fields(features: FeatureLogSettings, signature: Signature) -> None:
    """Check that `features.fields` holds all fields of the signature.

    Raises:
        Fatal: With exit code 2 if fields are missing; the message names them.
    """
    if missing := excluded_fields(features, signature):
        names = ", ".join(map(repr, missing))
        raise Fatal(
            f"the feature log {features.topic} lacks inputs of the version: features.fields does not hold {names}",
            "add these fields to features.fields, or set features.fields: all; this applies to scores from then on",
            USAGE,
        )
