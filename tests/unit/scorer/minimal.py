"""Settings with the required keys only."""

from typing import Any

from scorer.settings import Settings

STATED: dict[str, Any] = {
    "name": "n",
    "kafka": {"bootstrap_servers": "127.0.0.1:1"},
    "input": {"topics": ["in"]},
    "output": {"topic": "out"},
    "model": {"source": "oci:./registry/m"},
}


def minimal(**changes: Any) -> Settings:
    """Return the settings with these keys changed. A section is merged key by key."""
    values = dict(STATED)
    for key, value in changes.items():
        values[key] = {**values.get(key, {}), **value} if isinstance(value, dict) else value
    return Settings.model_validate(values)
