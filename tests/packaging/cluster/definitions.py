"""CustomResourceDefinitions of the chart's custom resources, from the JSON schemas in `tests/packaging/deploy/schemas`.

The API server validates custom resources with them. They describe only the fields of these schemas.
"""

import json
from pathlib import Path
from typing import Any


def read_definitions(folder: Path) -> list[dict[str, Any]]:
    """Return a CustomResourceDefinition for each `<kind>-<group>-<version>.json` of a folder."""
    return [_definition(path) for path in sorted(folder.glob("*.json"))]


def _definition(path: Path) -> dict[str, Any]:
    kind, group, version = path.stem.split("-")
    plural = f"{kind.lower()}s"
    schema = structural(json.loads(path.read_text()))
    schema["properties"].pop("metadata", None)  # the API server has its own schema for it
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def structural(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON schema as a structural schema of Kubernetes. Unknown fields are errors there without a keyword."""
    result = {key: value for key, value in schema.items() if key not in ("type", "additionalProperties")}
    types = schema.get("type")
    if types == ["integer", "string"]:
        result["x-kubernetes-int-or-string"] = True
    elif isinstance(types, list):
        result |= {"type": next(name for name in types if name != "null"), "nullable": True}
    elif types:
        result["type"] = types
    if "properties" in schema:
        result["properties"] = {name: structural(value) for name, value in schema["properties"].items()}
    if isinstance(schema.get("items"), dict):
        result["items"] = structural(schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = structural(schema["additionalProperties"])
    elif types == "object" and "properties" not in schema:
        result["x-kubernetes-preserve-unknown-fields"] = True
    return result
