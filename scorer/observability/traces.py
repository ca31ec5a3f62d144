"""Traces of batches, disabled by default.

With `tracing.endpoint` each batch is one span with links to the spans of its events; see `otlp.py`.
"""

from collections.abc import Mapping

from model_registry.extras import install_command
from publisher.errors import Fatal
from scorer.decoding.batch import Batch
from scorer.settings import Settings


class Traces:
    """The interface of the worker, and its disabled implementation, which reads no header.

    Each batch is begun once, and then ended, or failed together with all other open batches. One thread makes all calls.
    """

    def begin(self, batch: Batch, provenance: Mapping[str, str]) -> None:
        """Start the span of a batch for the version in `provenance`, and set the headers for its scores."""

    def end(self, batch: Batch, stages: Mapping[str, float], outcomes: Mapping[str, int]) -> None:
        """End the span of a committed batch with seconds by stage and events by outcome."""

    def fail(self, reason: object) -> None:
        """End all open spans as failed; their batches are read again."""

    def close(self) -> None:
        """Send the remaining spans within seconds. Never raises."""


def traces(settings: Settings) -> Traces:
    """Return the configured tracing. Raises Fatal (2) if its packages are not installed."""
    if settings.tracing.endpoint is None:
        return Traces()
    try:
        from scorer.observability.otlp import OtlpTraces
    except ImportError as error:
        raise Fatal(f"tracing.endpoint is set, but {error.name} is not installed", install_command("tracing"), 2) from error
    return OtlpTraces(settings.tracing.endpoint, settings.name, settings.owner)
