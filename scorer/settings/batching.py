"""The settings of batches (`batching`): the latency target and the largest batch."""

from pydantic import Field

from publisher.runtime.configuration import Section

DEFAULT_LATENCY_TARGET_MS = 20.0


class BatchingSettings(Section):
    """How many events are scored in one batch."""

    latency_target_ms: float = Field(default=DEFAULT_LATENCY_TARGET_MS, gt=0)
    """The time in which an event should be answered (ms). A batch grows while its oldest event can meet it. A busy broker or
    model takes longer."""
    max_events: int = Field(default=8_192, ge=1, le=100_000)
    """The largest batch (events). Batches beyond 1,000 events are limited so that the records of a partition fit into one
    produce request (1 MB)."""
