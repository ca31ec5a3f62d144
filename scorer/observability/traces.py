"""Traces of batches, as the loop sees them. Off by default: then nothing is done, and no event's headers are looked at.

On (`tracing.endpoint`), each batch is one span with links to the spans that its events came from; see otlp.py.
"""

from collections.abc import Mapping

from model_registry.extras import install_command
from publisher.errors import Fatal
from scorer.decoding.batch import Batch
from scorer.settings import Settings


class Traces:
    """Tracing that is off; what the loop calls. A batch is begun once, and ended, or failed with all that are begun."""

    def begin(self, batch: Batch, provenance: Mapping[str, str]) -> None:
        """A batch has been taken, for the version that `provenance` names. Sets what its events hand on to their scores."""

    def end(self, batch: Batch, stages: Mapping[str, float], outcomes: Mapping[str, int]) -> None:
        """A batch is committed: seconds by stage, events by outcome."""

    def fail(self, reason: object) -> None:
        """What is begun is given up, and will be done again."""

    def close(self) -> None:
        """Send what is not sent yet, within seconds. Never raises."""


def traces(settings: Settings) -> Traces:
    """As configured. Raises Fatal (2) where the packages for it are not installed."""
    if settings.tracing.endpoint is None:
        return Traces()
    try:
        from scorer.observability.otlp import OtlpTraces
    except ImportError as error:
        raise Fatal(f"tracing.endpoint is set, but {error.name} is not installed", install_command("tracing"), 2) from error
    return OtlpTraces(settings.tracing.endpoint, settings.name, settings.owner)
