"""The API server accepts every object as it is, and the objects agree with each other."""

import copy
import tomllib
from collections.abc import Mapping
from typing import Any

import pytest

from tests.packaging.deploy import manifests
from tests.packaging.deploy.chart import needs_helm
from tests.packaging.deploy.manifests import (
    CLUSTERS,
    EXAMPLES,
    TRAINING,
    Object,
    matches,
    of_kind,
    pod_of,
    rendered,
    title,
    workloads,
)
from tests.support.environment import ROOT

COMMANDS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"])
STRICT = {
    "allowPrivilegeEscalation": False,
    "privileged": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "runAsGroup": 10001,
    "capabilities": {"drop": ["ALL"]},
}
SCHEMA_REGISTRY = {"SCHEMA_REGISTRY_USERNAME", "SCHEMA_REGISTRY_PASSWORD"}


def is_served(workload: Object) -> bool:
    """Return whether the pods have a port for probes and metrics: all but those of the toolbox."""
    return "toolbox" not in workload["metadata"]["name"]


def test_the_stored_topics_and_users_are_rendered_from_the_current_sources() -> None:
    digest = manifests.digest_of(manifests.KAFKA)
    assert manifests.DIGEST.read_text().strip() == digest, "render them again: python -m tests deploy --write"


@needs_helm
@pytest.mark.parametrize("name", [*EXAMPLES, *TRAINING, *CLUSTERS])
def test_every_object_is_valid(name: str) -> None:
    for thing in rendered(name):
        manifests.validate(thing)


def test_priority_classes_and_quotas_are_valid() -> None:
    for thing in (*manifests.priority_classes().values(), *manifests.quotas().values()):
        manifests.validate(thing)


@needs_helm
@pytest.mark.parametrize(
    ("name", "kind", "path"),
    [
        ("cpu", "StatefulSet", ("spec", "template", "spec", "containers", 0)),
        ("cpu", "Deployment", ("spec", "template", "spec", "containers", 0)),
        ("cpu", "ScaledObject", ("spec", "triggers", 0)),
        ("cpu", "TriggerAuthentication", ("spec", "secretTargetRef", 0)),
        ("cpu", "PodMonitor", ("spec", "podMetricsEndpoints", 0)),
        ("cpu", "PrometheusRule", ("spec", "groups", 0, "rules", 0)),
        ("sasl", "ServiceMonitor", ("spec", "endpoints", 0)),
        ("training", "CronJob", ("spec", "jobTemplate", "spec")),
        ("training-on-labels", "ScaledJob", ("spec", "rollout")),
        ("training-on-labels", "ScaledJob", ("spec", "jobTargetRef")),
        ("training-on-labels", "ScaledJob", ("spec", "jobTargetRef", "template", "spec", "containers", 0)),
        ("training-nodes", "TrainingRuntime", ("spec", "mlPolicy")),
        (
            "training-nodes",
            "TrainingRuntime",
            ("spec", "template", "spec", "replicatedJobs", 0, "template", "spec", "template", "spec"),
        ),
        ("kafka/cluster", "KafkaTopic", ("spec",)),
        ("kafka/cluster", "KafkaUser", ("spec", "authorization", "acls", 0)),
    ],
)
def test_an_unknown_field_is_rejected(name: str, kind: str, path: tuple[str | int, ...]) -> None:
    thing = copy.deepcopy(next(iter(of_kind(rendered(name), kind).values())))
    place: Any = thing
    for step in path:
        place = place[step]
    place["replicaz"] = 3
    with pytest.raises(manifests.Invalid, match="replicaz"):
        manifests.validate(thing)


@needs_helm
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_object_that_is_referred_to_exists(name: str) -> None:
    things = rendered(name)
    for workload in workloads(things).values():
        pod = pod_of(workload)
        assert workload["kind"] == "Deployment" or workload["spec"]["serviceName"] in of_kind(things, "Service")
        assert pod["serviceAccountName"] in of_kind(things, "ServiceAccount")
        assert pod.get("priorityClassName") in {None, *manifests.priority_classes()}
        config = next(volume["configMap"]["name"] for volume in pod["volumes"] if volume["name"] == "config")
        assert config in of_kind(things, "ConfigMap")
        mounted = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
        if is_served(workload):
            ports = {port["name"] for port in pod["containers"][0]["ports"]}
            probes = [pod["containers"][0][f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
            assert {probe["port"] for probe in probes} <= ports
            assert [probe["path"] for probe in probes] == ["/livez", "/livez", "/readyz"]
    for scaled in of_kind(things, "ScaledObject").values():
        assert scaled["spec"]["scaleTargetRef"]["name"] in of_kind(things, "StatefulSet")
        credentials = of_kind(things, "TriggerAuthentication")
        assert {trigger["authenticationRef"]["name"] for trigger in scaled["spec"]["triggers"]} <= set(credentials)


@needs_helm
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_selector_selects_the_pods_of_one_workload(name: str) -> None:
    things = rendered(name)

    def labels_of(selection: Mapping[str, Object]) -> list[Any]:
        return [workload["spec"]["template"]["metadata"]["labels"] for workload in selection.values()]

    pods = labels_of(workloads(things))
    served = labels_of({key: workload for key, workload in workloads(things).items() if is_served(workload)})
    for kind, field, selected in (
        ("Service", "selector", served),
        ("PodDisruptionBudget", "selector", served),
        ("NetworkPolicy", "podSelector", pods),
    ):
        selectors = [thing["spec"][field] for thing in of_kind(things, kind).values()]
        assert [sum(matches(selector, labels) for labels in pods) for selector in selectors] == [1] * len(selected), kind
    assert all(
        matches(workload["spec"]["selector"], workload["spec"]["template"]["metadata"]["labels"])
        for workload in workloads(things).values()
    )


@needs_helm
@pytest.mark.parametrize("name", EXAMPLES)
def test_one_monitor_scrapes_all_pods_and_labels_them_with_their_service(name: str) -> None:
    things = rendered(name)
    (monitor,) = (of_kind(things, "PodMonitor") | of_kind(things, "ServiceMonitor")).values()
    selected = (
        [workload["spec"]["template"]["metadata"]["labels"] for workload in workloads(things).values() if is_served(workload)]
        if monitor["kind"] == "PodMonitor"
        else [service["metadata"]["labels"] for service in of_kind(things, "Service").values()]
    )
    assert all(matches(monitor["spec"]["selector"], labels) for labels in selected)
    (endpoint,) = monitor["spec"].get("podMetricsEndpoints") or monitor["spec"]["endpoints"]
    label = {"sourceLabels": ["__meta_kubernetes_pod_label_app_kubernetes_io_instance"], "targetLabel": "service"}
    assert [endpoint["port"], endpoint["path"], endpoint["relabelings"]] == ["http", "/metrics", [label]]


@needs_helm
@pytest.mark.parametrize("name", EXAMPLES)
def test_pods_have_no_rights_beyond_their_work(name: str) -> None:
    things = rendered(name)
    placed = {title(thing): thing["metadata"].get("namespace") for thing in things if not thing["kind"].startswith("Kafka")}
    assert set(placed.values()) == {"scoring"}, placed
    for account in of_kind(things, "ServiceAccount").values():
        assert account["automountServiceAccountToken"] is False
    assert not {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"} & {thing["kind"] for thing in things}
    for workload in workloads(things).values():
        pod = pod_of(workload)
        (container,) = pod["containers"]
        assert pod["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(pod)
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == STRICT
        assert container["command"][0] in COMMANDS | {"python3"}  # no shell
        from_secrets = [variable["name"] for variable in container.get("env", []) if "value" not in variable]
        # Passwords come as files; the client of the schema registry reads no file.
        assert all(variable.endswith("__USERNAME") or variable in SCHEMA_REGISTRY for variable in from_secrets)
        assert {"cpu", "memory", "ephemeral-storage"} <= set(container["resources"]["limits"])
        assert all(set(volume) - {"name"} <= {"configMap", "secret", "emptyDir"} for volume in pod["volumes"])
        assert container["imagePullPolicy"] == "IfNotPresent"  # a restart needs no registry
        assert not container["image"].endswith(":latest")
        assert ":" in container["image"]


@needs_helm
def test_gpus_are_selected_by_capability_and_never_shared() -> None:
    def pod(name: str) -> Object:
        return pod_of(of_kind(rendered(name), "StatefulSet")["flight-delay-scorer"])

    def terms(name: str) -> Any:
        return pod(name)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]

    for name in ("gpu", "gpu-older"):
        resources = pod(name)["containers"][0]["resources"]
        assert resources["limits"]["nvidia.com/gpu"] == resources["requests"]["nvidia.com/gpu"] == 1
        assert pod(name)["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    label = "nvidia.com/gpu.compute."
    assert terms("gpu") == [{"matchExpressions": [{"key": f"{label}major", "operator": "Gt", "values": ["7"]}]}]
    turing = [
        {"key": f"{label}{part}", "operator": "In", "values": [number]} for part, number in (("major", "7"), ("minor", "5"))
    ]
    assert terms("gpu-older") == [{"matchExpressions": turing}]
    values = {name: thing["value"] for name, thing in manifests.priority_classes().items()}
    new, old = (pod(name)["priorityClassName"] for name in ("gpu", "gpu-older"))
    assert values[new] > values[old] > 0
