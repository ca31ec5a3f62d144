"""`scorer config`: print the effective settings and their origins."""

from typing import Any

from publisher.runtime.command_line import Config, Json, Set, print_data, table
from publisher.runtime.configuration import flatten, shown
from scorer.settings import load, registry_properties


def config(path: Config, flags: Set = None, as_json: Json = False) -> None:
    """Print the effective settings and the origin of each."""
    loaded = load(path, flags or [])
    rows = {
        key: {"value": _shown(key, value), "from": loaded.origins.get(key, "default")}
        for key, value in flatten(loaded.settings.model_dump(mode="json"))
    }
    columns = ["setting", "value", "from"]
    print_data(as_json, rows, lambda: table(columns, [(key, row["value"], row["from"]) for key, row in rows.items()]))


def _shown(key: str, value: Any) -> Any:
    if key.startswith("schema_registry.extra"):
        return shown(key, value, registry_properties.ALLOWED)
    return shown(key, value)
