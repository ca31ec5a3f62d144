"""The settings of health, metrics (`http`) and traces (`tracing`)."""

from typing import Annotated

from pydantic import AfterValidator, Field

from publisher.runtime.configuration import Listen, Section
from scorer.settings import registry_properties


class ScorerHttpSettings(Section):
    """The address of health and metrics."""

    listen: Listen = "127.0.0.1:9464"
    """The address of `/livez`, `/readyz` and `/metrics`. Worker k adds k to the port. Port 0 selects a free port."""


class TracingSettings(Section):
    """The collector of traces."""

    endpoint: Annotated[str, AfterValidator(registry_properties.check_url)] | None = Field(default=None, pattern=r"^https?://")
    """The OTLP/HTTP collector of traces, such as `http://host:4318`. Each batch is one span. Needs the extra `tracing`."""
