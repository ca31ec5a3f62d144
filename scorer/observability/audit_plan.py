"""Select the topics and the consumer group of a scorer for an audit by `publisher.audit`."""

from publisher.audit.scorer_audit import AuditScope
from publisher.runtime.time_range import ALWAYS, TimeRange
from scorer.scores import formats
from scorer.settings import Settings


def audit_plan(settings: Settings, window: TimeRange = ALWAYS) -> AuditScope:
    """Return the scope of an audit: the topics and the consumer group of a scorer, for the events within `window`."""
    return AuditScope(
        settings.input.topics,
        [settings.output.topic],
        [settings.dead_letter.topic],
        [settings.swaps_topic],
        settings.name,
        *window,
        as_json=formats.as_json(settings),
    )
