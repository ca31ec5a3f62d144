"""`python -m tests cluster`: install the chart on a real Kubernetes API server.

1. Five objects with a planted fault are rejected, which shows that the server validates.
2. Every object of every example is applied with a server-side dry run and strict validation. A warning is a failure, also a
   warning of the Pod Security Standard `restricted`.
3. Two model services are installed in one namespace with Helm, upgraded and uninstalled. The controllers of Kubernetes create
   the pods of the wanted number; no pod runs, because there is no node.
4. The commands of `deploy/regions.md` pause and resume the autoscaling of a release.
5. Upgrades that enable autoscaling keep the number of scorers, and upgrades keep a pod of the toolbox that was started by hand.

Needs Go 1.24 or newer and Debian's etcd-server. The first run builds kube-apiserver and kube-controller-manager, which takes
about fifteen minutes on two cores; another run takes a minute.
"""

import contextlib
import copy
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.packaging.cluster.control_plane import ControlPlane, Rejected
from tests.packaging.cluster.definitions import read_definitions
from tests.packaging.deploy import chart, manifests
from tests.packaging.deploy.schemas import FOLDER as SCHEMAS
from tests.support.environment import ROOT
from tests.support.golang import program
from tests.support.waiting import until

NAMESPACES = ("kafka", "monitoring", "scoring")
SERVICES = {"flight-delay": ("cpu", "rollouts"), "card-fraud": ("second",)}
"""The releases that are installed, with their values files."""
PLANTED_FAULTS: Sequence[tuple[str, str, Callable[[dict[str, Any]], object]]] = (
    ("StatefulSet", "an unknown field", lambda thing: thing["spec"].update(replica=3)),
    ("StatefulSet", "a number as its image", lambda thing: thing["spec"]["template"]["spec"]["containers"][0].update(image=5)),
    ("StatefulSet", "no seccomp profile", lambda thing: thing["spec"]["template"]["spec"].pop("securityContext")),
    ("ScaledObject", "an unknown field", lambda thing: thing["spec"].update(replica=3)),
    ("PodMonitor", "no selector", lambda thing: thing["spec"].pop("selector")),
)
"""The kind of the object, a description of the fault, and a function that changes the object."""


def main() -> int:
    """Return 0 if the API server accepts everything, 1 otherwise."""
    with tempfile.TemporaryDirectory(prefix="cluster-") as folder, ControlPlane(Path(folder)) as plane:
        for name in NAMESPACES:
            labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
            plane.apply(namespace, "", dry_run=False)
        for definition in read_definitions(SCHEMAS):
            plane.apply(definition, "", dry_run=False)
        faults = [*plant_faults(plane), *validate_examples(plane), *install_services(plane)]
        faults += [*pause_autoscaling(plane), *enable_autoscaling(plane)]
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults")
    return 1 if faults else 0


def plant_faults(plane: ControlPlane) -> list[str]:
    """Apply objects with planted faults, and return those that the API server accepts."""
    accepted = []
    for kind, title, plant in PLANTED_FAULTS:
        thing = copy.deepcopy(next(thing for thing in manifests.rendered("cpu") if thing["kind"] == kind))
        plant(thing)
        with contextlib.suppress(Rejected):
            plane.apply(thing, "scoring", dry_run=True)
            accepted.append(f"the API server accepted a {kind} with {title}")
    print(f"{len(PLANTED_FAULTS)} planted faults, {len(accepted)} accepted")
    return accepted


def validate_examples(plane: ControlPlane) -> list[str]:
    """Apply the objects of every example with a dry run, and return the rejections."""
    rejections = []
    examples = (*manifests.EXAMPLES, *manifests.TRAINING, *manifests.CLUSTERS)
    count = 0
    for example in examples:
        for thing in manifests.rendered(example):
            count += 1
            try:
                plane.apply(thing, "scoring", dry_run=True)
            except Rejected as error:
                rejections.append(f"{example}: {error}")
    print(f"{count} objects of {len(examples)} examples applied with a dry run, {len(rejections)} rejected")
    return rejections


def install_services(plane: ControlPlane) -> list[str]:
    """Install, upgrade and uninstall two services in one namespace with Helm, and return the faults."""
    faults = []
    objects = {release: manifests_of(release) for release in SERVICES}
    for release in SERVICES:
        helm(plane, "install", release, *values_of(release))
    workloads = [workload for things in objects.values() for workload in manifests.workloads(things).values()]
    for workload in workloads:
        wanted = workload["spec"].get("replicas", 1)
        until(partial(has_pods, plane, workload, wanted), f"{wanted} pods of {manifests.title(workload)}")
    print(f"{len(plane.read_objects('v1', 'Pod', 'scoring'))} pods of {len(workloads)} workloads created")
    for release in SERVICES:
        helm(plane, "upgrade", release, *values_of(release), "--set", "scorer.replicas=3")
    first, second = SERVICES
    helm(plane, "uninstall", first)
    until(lambda: not remaining(plane, objects[first]), f"removal of {first}")
    if missing := [title for title in map(manifests.title, objects[second]) if title not in remaining(plane, objects[second])]:
        faults.append(f"uninstalling {first} removed {', '.join(missing)} of {second}")
    helm(plane, "uninstall", second)
    kept_objects = {manifests.title(thing) for thing in objects[second] if is_kept(thing)}
    until(lambda: remaining(plane, objects[second]) == kept_objects, f"removal of {second}, except {', '.join(kept_objects)}")
    print(f"{len(SERVICES)} services installed, upgraded and uninstalled in one namespace")
    return faults


def pause_autoscaling(plane: ControlPlane) -> list[str]:
    """Run the commands of `deploy/regions.md` that pause and resume autoscaling, and return the faults."""
    commands = re.findall(
        r"^helm .* upgrade flight-delay deploy/chart -n scoring (.*pausedReplicas=.*)$",
        (ROOT / "deploy" / "regions.md").read_text(),
        re.MULTILINE,
    )
    wanted = ["0", None]
    helm(plane, "install", "flight-delay", *values_of("flight-delay"))
    annotations = []
    for options in commands:
        helm(plane, "upgrade", "flight-delay", *shlex.split(options))
        (scaled,) = plane.read_objects("keda.sh/v1alpha1", "ScaledObject", "scoring")
        annotations.append(scaled["metadata"].get("annotations", {}).get("autoscaling.keda.sh/paused-replicas"))
    helm(plane, "uninstall", "flight-delay")
    print(f"{len(commands)} commands paused and resumed autoscaling: {annotations}")
    return [] if annotations == wanted else [f"autoscaling was paused at {annotations}, but the page states {wanted}"]


def enable_autoscaling(plane: ControlPlane) -> list[str]:
    """Enable autoscaling for a release with four scorers and a running toolbox, and return the faults."""
    values = values_of("card-fraud")
    numbers = []
    helm(plane, "install", "card-fraud", *values, "--set", "autoscaling.enabled=false,scorer.replicas=4,toolbox.replicas=1")
    for interval in (15, 30):
        helm(
            plane, "upgrade", "card-fraud", *values, "--set", f"autoscaling.enabled=true,autoscaling.pollingInterval={interval}"
        )
        (scorers,) = plane.read_objects("apps/v1", "StatefulSet", "scoring")
        tools = plane.read_objects("apps/v1", "Deployment", "scoring")
        numbers.append([thing["spec"]["replicas"] for thing in (scorers, *tools)])
    helm(plane, "uninstall", "card-fraud")
    print(f"replicas of scorers and tools after each upgrade: {numbers}")
    return [] if numbers == 2 * [[4, 1, 1, 1]] else [f"upgrades changed replicas: {numbers}"]


def values_of(release: str) -> list[str]:
    """Return the options of Helm with the values files of a release."""
    return [option for name in SERVICES[release] for option in ("--values", str(chart.EXAMPLES / f"{name}.yaml"))]


def manifests_of(release: str) -> list[dict[str, Any]]:
    """Return the objects that Helm renders for a release."""
    return chart.render([chart.EXAMPLES / f"{name}.yaml" for name in SERVICES[release]], release=release)


def helm(plane: ControlPlane, verb: str, release: str, *options: str) -> None:
    """Run a command of Helm in the namespace `scoring`. Raises CalledProcessError, after Helm has printed the reason."""
    where = ["--kubeconfig", str(plane.kubeconfig), "--namespace", "scoring"]
    source = [] if verb == "uninstall" else [str(chart.CHART)]
    command = [str(program(chart.MODULE)), verb, release, *source, *where, *options]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def has_pods(plane: ControlPlane, workload: dict[str, Any], wanted: int) -> bool:
    """Return whether a workload has the wanted number of pods."""
    pods = plane.read_objects("v1", "Pod", "scoring")
    return wanted == sum(manifests.matches(workload["spec"]["selector"], pod["metadata"]["labels"]) for pod in pods)


def remaining(plane: ControlPlane, things: Sequence[dict[str, Any]]) -> set[str]:
    """Return the titles of the given objects that exist."""
    kinds = {(thing["apiVersion"], thing["kind"], thing["metadata"]["namespace"]) for thing in things}
    existing = {
        f"{kind}/{thing['metadata']['name']}"
        for version, kind, namespace in kinds
        for thing in plane.read_objects(version, kind, namespace)
    }
    return existing & {manifests.title(thing) for thing in things}


def is_kept(thing: dict[str, Any]) -> bool:
    """Return whether Helm keeps an object when its release is uninstalled."""
    annotations: dict[str, str] = thing["metadata"].get("annotations", {})
    return annotations.get("helm.sh/resource-policy") == "keep"


if __name__ == "__main__":
    sys.exit(main())
