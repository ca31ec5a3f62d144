"""Every object is one that an API server takes as it is, and what objects say of each other is true."""

import copy
import tomllib
from collections.abc import Mapping
from typing import Any

import pytest

from tests.packaging.deploy import manifests
from tests.packaging.deploy.manifests import (
    CLUSTERS,
    OVERLAYS,
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


def test_what_is_kept_was_rendered_from_todays_sources() -> None:
    digest = manifests.digest_of(manifests.SOURCES)
    assert manifests.DIGEST.read_text().strip() == digest, "render them again: python -m tests deploy --write"


@pytest.mark.parametrize("name", [*OVERLAYS, *TRAINING, *CLUSTERS])
def test_every_object_is_valid(name: str) -> None:
    for thing in rendered(name):
        manifests.validate(thing)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("StatefulSet", ("spec", "template", "spec", "containers", 0)),
        ("Deployment", ("spec", "template", "spec", "containers", 0)),
        ("ScaledObject", ("spec", "triggers", 0)),
        ("TriggerAuthentication", ("spec", "secretTargetRef", 0)),
        ("PodMonitor", ("spec", "podMetricsEndpoints", 0)),
        ("PrometheusRule", ("spec", "groups", 0, "rules", 0)),
        ("CronJob", ("spec", "jobTemplate", "spec")),
        ("ScaledJob", ("spec", "rollout")),
        ("ScaledJob", ("spec", "jobTargetRef")),
        ("ScaledJob", ("spec", "jobTargetRef", "template", "spec", "containers", 0)),
        ("TrainingRuntime", ("spec", "mlPolicy")),
        ("TrainingRuntime", ("spec", "template", "spec", "replicatedJobs", 0, "template", "spec", "template", "spec")),
        ("KafkaTopic", ("spec",)),
        ("KafkaUser", ("spec", "authorization", "acls", 0)),
    ],
)
def test_an_unknown_field_is_refused(kind: str, path: tuple[str | int, ...]) -> None:
    named = {"Kafka": "kafka/cluster", "CronJob": "overlays/training", "ScaledJob": "overlays/training-on-labels"}
    named["TrainingRuntime"] = "overlays/training-nodes"
    name = next((named[start] for start in named if kind.startswith(start)), "overlays/cpu-rollouts")
    thing = copy.deepcopy(next(iter(of_kind(rendered(name), kind).values())))
    place: Any = thing
    for step in path:
        place = place[step]
    place["replicaz"] = 3
    with pytest.raises(manifests.Invalid, match="replicaz"):
        manifests.validate(thing)


@pytest.mark.parametrize("name", OVERLAYS)
def test_what_is_referred_to_is_there(name: str) -> None:
    things = rendered(name)
    for workload in workloads(things).values():
        pod = pod_of(workload)
        assert workload["kind"] == "Deployment" or workload["spec"]["serviceName"] in of_kind(things, "Service")
        assert pod["serviceAccountName"] in of_kind(things, "ServiceAccount")
        assert pod.get("priorityClassName") in {None, *of_kind(things, "PriorityClass")}
        maps = {volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume}
        assert maps <= set(of_kind(things, "ConfigMap"))
        mounted = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
        ports = {port["name"] for port in pod["containers"][0]["ports"]}
        probes = [pod["containers"][0][f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
        assert {probe["port"] for probe in probes} <= ports
        assert [probe["path"] for probe in probes] == ["/livez", "/livez", "/readyz"]
    for scaled in of_kind(things, "ScaledObject").values():
        assert scaled["spec"]["scaleTargetRef"]["name"] in of_kind(things, "StatefulSet")
        known = of_kind(things, "TriggerAuthentication")
        assert {trigger["authenticationRef"]["name"] for trigger in scaled["spec"]["triggers"]} <= set(known)


@pytest.mark.parametrize("name", OVERLAYS)
def test_selectors_take_the_pods_they_mean_and_each_pod_has_all_of_them(name: str) -> None:
    things = rendered(name)

    def labels_of(found: Mapping[str, Object]) -> list[Any]:
        return [workload["spec"]["template"]["metadata"]["labels"] for workload in found.values()]

    pods, named = labels_of(workloads(things)), labels_of(of_kind(things, "StatefulSet"))
    for kind, field, meant in (
        ("Service", "selector", named),
        ("PodDisruptionBudget", "selector", pods),
        ("NetworkPolicy", "podSelector", pods),
    ):
        found = [thing["spec"][field] for thing in of_kind(things, kind).values()]
        assert [sum(matches(selector, labels) for labels in pods) for selector in found] == [1] * len(meant), kind
    monitors = [monitor["spec"] for monitor in of_kind(things, "PodMonitor").values()]
    assert all(sum(matches(monitor["selector"], labels) for monitor in monitors) == 1 for labels in pods)


@pytest.mark.parametrize("name", OVERLAYS)
def test_pods_can_do_nothing_but_their_work_in_their_namespace(name: str) -> None:
    things = rendered(name)
    placed = {title(thing): thing["metadata"].get("namespace") for thing in things if thing["kind"] != "PriorityClass"}
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
        assert container["command"][0] in COMMANDS  # no shell
        assert all("value" in variable for variable in container.get("env", []))  # secrets come as files
        assert {"cpu", "memory", "ephemeral-storage"} <= set(container["resources"]["limits"])
        assert all(set(volume) - {"name"} <= {"configMap", "secret", "emptyDir"} for volume in pod["volumes"])
        assert not container["image"].endswith(":latest")
        assert ":" in container["image"]


def test_cards_new_and_old_are_chosen_by_capability_and_never_shared() -> None:
    def pod(name: str) -> Object:
        return pod_of(of_kind(rendered(name), "StatefulSet")["scorer"])

    def terms(name: str) -> Any:
        return pod(name)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]

    for name in ("overlays/gpu", "overlays/gpu-older"):
        resources = pod(name)["containers"][0]["resources"]
        assert resources["limits"]["nvidia.com/gpu"] == resources["requests"]["nvidia.com/gpu"] == 1
        assert pod(name)["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    label = "nvidia.com/gpu.compute."
    assert terms("overlays/gpu") == [{"matchExpressions": [{"key": f"{label}major", "operator": "Gt", "values": ["7"]}]}]
    turing = [
        {"key": f"{label}{part}", "operator": "In", "values": [number]} for part, number in (("major", "7"), ("minor", "5"))
    ]
    assert terms("overlays/gpu-older") == [{"matchExpressions": turing}]
    values = {name: thing["value"] for name, thing in of_kind(rendered("overlays/gpu"), "PriorityClass").items()}
    new, old = (pod(name)["priorityClassName"] for name in ("overlays/gpu", "overlays/gpu-older"))
    assert values[new] > values[old] > 0
