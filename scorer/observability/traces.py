"""Traces of batches, disabled by default.

With `tracing.endpoint` each batch is one span with links to the spans of its events; see `otlp.py`.
"""

from collections.abc import Mapping

from model_registry.extras import install_command
from publisher.errors import Fatal
from scorer.decoding.batch import Batch
from scorer.settings import Settings


class Traces:
    """The tracing interface that the worker calls. This base class is the disabled tracing: it does nothing.

    The worker calls `begin` once for each batch. Then `end` ends the batch, or `fail` ends all batches that have begun. One
    thread makes all calls.
    """

    def begin(self, batch: Batch, provenance: Mapping[str, str]) -> None:
        """Start the span of a batch, and set the trace headers of the batch's scores in `batch`.

        `provenance` describes the version that scores the batch.
        """

    def end(self, batch: Batch, stages: Mapping[str, float], outcomes: Mapping[str, int]) -> None:
        """End the span of a committed batch.

        The span gets the seconds by stage, and the number of events by outcome.
        """

    def fail(self, reason: object) -> None:
        """End all open spans with an error status. The batches will be read again, each with a new span."""

    def close(self) -> None:
        """Send the remaining spans, for a few seconds at most. Never raises."""


def traces(settings: Settings) -> Traces:
    """Create the tracing that the settings configure. Raises Fatal with exit code 2 if its packages are missing."""
    if settings.tracing.endpoint is None:
        return Traces()
    try:
        from scorer.observability.otlp import OtlpTraces
    except ImportError as error:
        raise Fatal(f"tracing.endpoint is set, but {error.name} is not installed", install_command("tracing"), 2) from error
    return OtlpTraces(settings.tracing.endpoint, settings.name, settings.owner)
