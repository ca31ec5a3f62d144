"""How a shadow works (`shadow`): which share of the keys it scores, and how far behind it may be."""

from pydantic import Field

from publisher.runtime.configuration import Listen, Section


class ShadowSection(Section):
    share: int = Field(default=20, ge=1, le=100)
    """The percent of the keys that `scorer run --shadow` scores; `--share` sets it."""
    max_lag_seconds: float = Field(default=60.0, ge=1)
    """A shadow that is further behind (s) goes on at the end of the partition, and counts what it left out."""
    listen: Listen = "127.0.0.1:9664"
    """Where a shadow serves what a scorer does at `http.listen`."""
