"""The settings of a shadow (`shadow`): the share of the keys that it scores, and its lag limit."""

from pydantic import Field

from publisher.runtime.configuration import Listen, Section


class ShadowSettings(Section):
    """The share of the keys whose events a shadow scores, its lag limit, and its address."""

    share: int = Field(default=20, ge=1, le=100)
    """The percentage of the keys whose events `scorer run --shadow` scores. The option `--share` overrides it."""
    max_lag_seconds: float = Field(default=60.0, ge=1)
    """The lag limit of a shadow (s). If a partition lags more, the shadow skips to its end, and counts the skipped events."""
    listen: Listen = "127.0.0.1:9664"
    """The address of `/livez`, `/readyz` and `/metrics` of a shadow."""
