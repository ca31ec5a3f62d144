"""The topics and the consumer group of a scorer that `publisher.audit` audits."""

from publisher.audit.scorer_audit import AuditScope
from publisher.runtime.time_range import ALWAYS, TimeRange
from scorer.scores import formats
from scorer.settings import Settings


def audit_plan(settings: Settings, window: TimeRange = ALWAYS) -> AuditScope:
    """Return the plan of an audit: all topics of the settings, the group's committed offsets, and the inputs of the window."""
    return AuditScope(
        settings.input.topics,
        [settings.output.topic],
        [settings.dead_letter.topic],
        [settings.swaps_topic],
        settings.name,
        *window,
        as_json=formats.as_json(settings),
    )
