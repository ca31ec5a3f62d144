"""The settings of batches (`batching`): the latency target and the largest batch."""

from pydantic import Field

from publisher.runtime.configuration import Section

DEFAULT_LATENCY_TARGET_MS = 20.0


class BatchingSettings(Section):
    """The number of events that are scored in one batch."""

    latency_target_ms: float = Field(default=DEFAULT_LATENCY_TARGET_MS, gt=0)
    """The time in which an event should be answered (ms). A batch grows only while its oldest event can still be answered in
    this time. If the broker or the model is busy, an answer may take longer."""
    max_events: int = Field(default=8_192, ge=1, le=100_000)
    """The largest batch (events). Batches of more than 1,000 events are also limited so that the records of each output
    partition fit into one produce request (1 MB). Feature records may need several requests, up to 8 MB together."""
