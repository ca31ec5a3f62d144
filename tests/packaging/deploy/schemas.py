"""`python -m tests.packaging.deploy.schemas CRD.yaml...`: JSON schemas from the definitions of custom resources, into schemas/.

They come from KEDA (config/crd/bases), Strimzi (install/cluster-operator), the Prometheus operator (example/
prometheus-operator-crd) and Kubeflow Trainer (manifests/base/crds), all Apache-2.0. An API server removes unknown fields
without an error; these schemas reject them. The parts of Kubernetes itself (EMBEDDED) are left open: its schemas check them.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).with_name("schemas")
KEYWORDS = {
    "type",
    "properties",
    "required",
    "items",
    "enum",
    "format",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "additionalProperties",
}
EMBEDDED = {
    "ScaledJob": ("spec", "jobTargetRef"),
    "TrainingRuntime": ("spec", "template", "spec", "replicatedJobs", "*", "template", "spec"),
}
"""The path of the `spec` of a Job in a custom resource; `*`: each entry of a list."""
UNUSED = {"runtimePatches", "initializer"}
"""Fields that no manifest here has. They are rejected like unknown fields, because their schemas are the longest."""
ENVELOPE = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}


def strict(schema: Any) -> Any:
    """Return a structural schema as a JSON schema that allows no unknown fields, without descriptions. Pure."""
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    result: dict[str, Any] = {key: value for key, value in schema.items() if key in KEYWORDS}
    if "properties" in result:
        result["properties"] = {name: strict(value) for name, value in result["properties"].items() if name not in UNUSED}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            result.setdefault("additionalProperties", False)
    for key in ("items", "additionalProperties", "not"):
        if isinstance(result.get(key), dict):
            result[key] = strict(result[key])
    for key in ("anyOf", "oneOf", "allOf"):  # they add conditions, never fields
        result.pop(key, None) if "properties" in result else None
    if schema.get("nullable") and isinstance(result.get("type"), str):
        result["type"] = [result["type"], "null"]
    return result


def leave_open(schema: dict[str, Any], path: Sequence[str]) -> None:
    """Let the schema accept any object at this path."""
    for step in path[:-1]:
        schema = schema["items"] if step == "*" else schema["properties"][step]
    schema["properties"][path[-1]] = {"type": "object"}


def of(definition: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the schema of each served version of a CustomResourceDefinition, by file name. Pure."""
    spec = definition["spec"]
    schemas = {}
    for version in spec["versions"]:
        if version["served"]:
            schema = strict(version["schema"]["openAPIV3Schema"])
            schema["properties"] = {**schema["properties"], **ENVELOPE}
            schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
            kind = spec["names"]["kind"]
            if kind in EMBEDDED:
                leave_open(schema, EMBEDDED[kind])
            schemas[f"{kind}-{spec['group']}-{version['name']}.json"] = schema
    return schemas


def main(paths: Sequence[str]) -> int:
    for path in paths:
        for name, schema in of(yaml.safe_load(Path(path).read_text())).items():
            (FOLDER / name).write_text(json.dumps(schema, separators=(",", ":"), sort_keys=True) + "\n")
            print(FOLDER / name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
