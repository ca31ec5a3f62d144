"""Render the examples of the chart, and validate Kubernetes objects against schemas.

Topics and users for Strimzi (`deploy/kubernetes/kafka`) are stored as kustomize renders them; `python -m tests deploy --write`
renders them again, and a digest of the sources shows whether that is necessary.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

from tests.packaging.deploy import chart
from tests.packaging.deploy.schemas import EMBEDDED
from tests.packaging.deploy.schemas import FOLDER as SCHEMAS
from tests.support.environment import ROOT

SOURCES = ROOT / "deploy" / "kubernetes"
KAFKA = SOURCES / "kafka"
RENDERED = Path(__file__).with_name("rendered")
DIGEST = RENDERED / "sources.sha256"
KUBERNETES = "1.34"
EXAMPLES = {
    "cpu": ("cpu",),
    "rollouts": ("cpu", "rollouts"),
    "gpu": ("cpu", "gpu"),
    "gpu-older": ("cpu", "gpu", "gpu-older"),
    "sasl": ("cpu", "rollouts", "sasl"),
    "eu-west": ("cpu", "eu-west"),
    "us-east": ("cpu", "us-east"),
    "ap-south": ("cpu", "ap-south"),
    "second": ("second",),
    "churn": ("churn",),
}
"""The values files of each installation of scorers, in their order."""
TRAINING = {
    "training": ("cpu", "training"),
    "training-on-labels": ("cpu", "training", "training-on-labels"),
    "training-gpu": ("cpu", "training", "training-gpu"),
    "training-nodes": ("cpu", "training", "training-gpu", "training-nodes"),
    "training-placement": ("cpu", "training", "training-gpu", "training-placement"),
}
"""The values files of each installation with training."""
RELEASES = {"second": "card-fraud", "churn": "churn"}
"""The releases of the examples whose release is not `flight-delay`."""
CLUSTERS = tuple(
    f"kafka/{name}"
    for name in ("cluster", "training", "eu-west", "us-east", "ap-south", "failover/eu-west", "failover/us-east")
)
REGIONS = ("eu-west", "us-east", "ap-south")

Object = dict[str, Any]


class Invalid(Exception):
    """The schema rejects an object; the message has the object, the place and the fault."""


@cache
def rendered(name: str) -> Sequence[Object]:
    """Return the objects of an example of the chart, or of a folder of topics and users. Callers must not change them."""
    if name in CLUSTERS:
        return [json.loads(line) for line in file_of(name).read_text().splitlines()]
    files = [chart.EXAMPLES / f"{part}.yaml" for part in (EXAMPLES | TRAINING)[name]]
    return chart.render(files, release=release_of(name))


def release_of(name: str) -> str:
    """Return the name of the release of an example."""
    return RELEASES.get(name, "flight-delay")


def quotas() -> dict[str, Object]:
    """Return the ResourceQuotas of training runs by name."""
    return of_kind(list(yaml.safe_load_all((SOURCES / "training_quota.yaml").read_text())), "ResourceQuota")


def priority_classes() -> dict[str, Object]:
    """Return the PriorityClasses of the cluster by name."""
    return of_kind(list(yaml.safe_load_all((SOURCES / "priority_classes.yaml").read_text())), "PriorityClass")


def file_of(name: str) -> Path:
    """Return the file with the stored objects of a folder of topics and users."""
    return RENDERED / f"{name.replace('/', '-')}.jsonl"


def lines(text: str) -> str:
    """Return the output of kustomize as it is stored: one JSON object per line."""
    return "".join(json.dumps(thing, separators=(",", ":"), sort_keys=True) + "\n" for thing in yaml.safe_load_all(text))


def digest_of(folder: Path) -> str:
    """Return the SHA-256 digest (hexadecimal) of the names and contents of all files in a folder."""
    total = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(folder)} {content}\n".encode())
    return total.hexdigest()


def validate(thing: Object) -> None:
    """Validate an object by the schema of its kind, with unknown fields rejected. Raises Invalid."""
    group, _, version = thing["apiVersion"].rpartition("/")
    schema = SCHEMAS / f"{thing['kind']}-{group}-{version}.json"
    try:
        if schema.exists():
            jsonschema.Draft202012Validator(json.loads(schema.read_text())).validate(thing)
            for part in embedded(thing):
                validate(part)
        else:
            kubernetes_validate.validate(thing, KUBERNETES, strict=True)
    except jsonschema.ValidationError as error:
        raise Invalid(f"{title(thing)}: {'.'.join(map(str, error.absolute_path))}: {error.message}") from error


def embedded(thing: Object) -> Sequence[Object]:
    """Return the Jobs in an object of a custom kind, as separate objects."""
    specs: list[Any] = [thing] if thing["kind"] in EMBEDDED else []
    for step in EMBEDDED.get(thing["kind"], ()):
        specs = [part for parent in specs for part in (parent if step == "*" else [parent[step]])]
    return [{"apiVersion": "batch/v1", "kind": "Job", "metadata": thing["metadata"], "spec": spec} for spec in specs]


def title(thing: Object) -> str:
    """Return the kind and name of an object: `Service/a`."""
    return f"{thing['kind']}/{thing['metadata']['name']}"


def of_kind(things: Sequence[Object], kind: str) -> dict[str, Object]:
    """Return the objects of a kind by name."""
    return {thing["metadata"]["name"]: thing for thing in things if thing["kind"] == kind}


def workloads(things: Sequence[Object]) -> dict[str, Object]:
    """Return the StatefulSets and Deployments by name."""
    return of_kind(things, "StatefulSet") | of_kind(things, "Deployment")


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether a label selector (`matchLabels`, and `matchExpressions` with `In`) selects these labels."""
    required = selector.get("matchLabels", selector)
    expressions = selector.get("matchExpressions", [])
    assert all(expression["operator"] == "In" for expression in expressions)
    return all(labels.get(name) == value for name, value in required.items()) and all(
        labels.get(expression["key"]) in expression["values"] for expression in expressions
    )


def pod_of(workload: Object) -> Object:
    """Return the spec of the pods of a workload."""
    spec: Object = workload["spec"]["template"]["spec"]
    return spec


def configuration(things: Sequence[Object], workload: Object) -> str:
    """Return the text of the configuration of a workload: scorer.yaml, or publisher.yaml of a relay."""
    maps = of_kind(things, "ConfigMap")
    name = next(volume["configMap"]["name"] for volume in pod_of(workload)["volumes"] if volume["name"] == "config")
    files = maps[name]["data"]
    return str(files.get("publisher.yaml") or files["scorer.yaml"])
