"""Training in Kubernetes: one pod spec for three triggers, which agrees with training.yaml, exit codes, topics and rights."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from publisher.errors import FINDING, REFUSED, UNREACHABLE, USAGE
from publisher.runtime.time_range import seconds
from scorer.settings import Settings
from tests.integration.security import rights
from tests.packaging.deploy import chart, manifests
from tests.packaging.deploy.chart import needs_helm
from tests.packaging.deploy.manifests import (
    EXAMPLES,
    SOURCES,
    TRAINING,
    Invalid,
    Object,
    configuration,
    matches,
    of_kind,
    priority_classes,
    rendered,
    title,
    validate,
)
from tests.packaging.deploy.test_configuration import KEDA, KINDS, USER_FILES, paths
from tests.packaging.deploy.test_manifests import STRICT
from tests.support.environment import ROOT
from training.settings import TrainingSettings, load

BY_EVENT = "training-on-labels"
NODES = "training-nodes"
PLACED = "training-placement"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
KAFKA = "kafka/training"
RUNS = Path("/var/lib/scorestream")
ENDS_AT_ONCE = [FINDING, USAGE, REFUSED]


def cron_job(name: str) -> Object:
    return of_kind(rendered(name), "CronJob")["flight-delay-training"]


def job(name: str) -> Object:
    """Return the spec of the Job, which is the same for every trigger."""
    spec: Object = cron_job(name)["spec"]["jobTemplate"]["spec"]
    return spec


def pod(name: str) -> Object:
    spec: Object = job(name)["template"]["spec"]
    return spec


def written(name: str) -> dict[str, dict[str, Any]]:
    """Return the files of the configuration, by name."""
    data = of_kind(rendered(name), "ConfigMap")["flight-delay-training"]["data"]
    return {file: yaml.safe_load(text) for file, text in data.items()}


def loaded(name: str, folder: Path) -> tuple[TrainingSettings, Settings]:
    """Load the configuration as the product does, without the certificates, which are files of the cluster."""
    files = written(name)
    del files["scorer.yaml"]["kafka"]["security"]
    for file, values in files.items():
        (folder / file).write_text(yaml.safe_dump(values))
    return load(folder / "training.yaml")


def trigger() -> dict[str, str]:
    """Return the metadata of KEDA's trigger."""
    (spec,) = of_kind(rendered(BY_EVENT), "ScaledJob")["flight-delay-training"]["spec"]["triggers"]
    assert spec["type"] == "kafka"
    metadata: dict[str, str] = spec["metadata"]
    return metadata


def topic(name: str) -> Object:
    spec: Object = of_kind(rendered(KAFKA), "KafkaTopic")[name]["spec"]
    return spec


@needs_helm
def test_every_trigger_runs_the_same() -> None:
    by_event = of_kind(rendered(BY_EVENT), "ScaledJob")["flight-delay-training"]["spec"]
    assert by_event["jobTargetRef"] == job(BY_EVENT) == job("training")
    assert cron_job(BY_EVENT)["spec"]["suspend"] is True
    assert cron_job("training")["spec"].get("suspend", False) is False


@needs_helm
def test_only_one_run_is_active_at_a_time() -> None:
    by_event = of_kind(rendered(BY_EVENT), "ScaledJob")["flight-delay-training"]["spec"]
    assert [by_event["maxReplicaCount"], by_event["rollout"]] == [1, {"strategy": "gradual"}]
    for name in TRAINING:
        assert cron_job(name)["spec"]["concurrencyPolicy"] == "Forbid"
        assert job(name)["podReplacementPolicy"] == "Failed"
        assert {"parallelism", "completions"}.isdisjoint(job(name))
        (claim,) = of_kind(rendered(name), "PersistentVolumeClaim").values()
        assert claim["spec"]["accessModes"] == ["ReadWriteMany" if name == NODES else "ReadWriteOncePod"]


@needs_helm
@pytest.mark.parametrize("name", TRAINING)
def test_permanent_errors_fail_at_once_and_disruptions_are_not_counted(name: str) -> None:
    disrupted, refused = job(name)["podFailurePolicy"]["rules"]
    assert disrupted == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    container = pod(name)["containers"][0]["name"]
    assert refused == {
        "action": "FailJob",
        "onExitCodes": {"containerName": container, "operator": "In", "values": ENDS_AT_ONCE},
    }
    assert UNREACHABLE not in ENDS_AT_ONCE
    assert pod(name)["restartPolicy"] == "Never"
    waits = [min(10 * 2**tried, 360) for tried in range(job(name)["backoffLimit"])]  # seconds; Kubernetes' own back-off
    assert 1_800 < sum(waits) < job(name)["activeDeadlineSeconds"]


@needs_helm
@pytest.mark.parametrize("name", TRAINING)
def test_a_pod_has_only_the_rights_of_its_work_and_stores_only_its_runs(name: str) -> None:
    things = rendered(name)
    assert {thing["metadata"].get("namespace") for thing in things} == {"scoring"}
    assert not {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"} & {thing["kind"] for thing in things}
    assert of_kind(things, "ServiceAccount")[pod(name)["serviceAccountName"]]["automountServiceAccountToken"] is False
    assert pod(name)["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(pod(name))
    assert pod(name)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod(name)["containers"]
    assert container["securityContext"] == STRICT
    assert all("value" in variable for variable in container["env"])  # secrets come as files
    assert {"cpu", "memory", "ephemeral-storage"} <= set(container["resources"]["limits"])
    policy = of_kind(things, "NetworkPolicy")["flight-delay-training"]
    assert matches(policy["spec"]["podSelector"], job(name)["template"]["metadata"]["labels"])
    assert policy["spec"]["ingress"] == []


@needs_helm
@pytest.mark.parametrize("name", TRAINING)
def test_every_object_that_is_referred_to_exists(name: str) -> None:
    things = rendered(name)
    volumes = {volume["name"]: volume for volume in pod(name)["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in pod(name)["containers"][0]["volumeMounts"]}
    assert {mount["name"] for mount in mounts.values()} == set(volumes)
    assert volumes["config"]["configMap"]["name"] in of_kind(things, "ConfigMap")
    assert volumes["runs"]["persistentVolumeClaim"]["claimName"] in of_kind(things, "PersistentVolumeClaim")
    assert pod(name)["priorityClassName"] in priority_classes()
    for scaled in of_kind(things, "ScaledJob").values():
        authentications = of_kind(things, "TriggerAuthentication")
        assert {scaler["authenticationRef"]["name"] for scaler in scaled["spec"]["triggers"]} <= set(authentications)
    files = written(name)
    named = {Path(path) for values in files.values() for path in paths(values)}
    named.discard(Path("/var/cache/scorestream"))
    run_paths = {path for path in named if path.is_relative_to(RUNS)}
    assert mounts[str(RUNS)]["name"] == "runs"
    assert {path.parent for path in run_paths} == {RUNS}  # the rest of the pod's file systems ends with it
    assert {path.name for path in named - run_paths} == USER_FILES | {"training.key", "password"}
    assert all(mounts[str(path.parent)]["readOnly"] for path in named - run_paths)


@needs_helm
@pytest.mark.parametrize("name", TRAINING)
def test_the_product_accepts_the_configuration(name: str, tmp_path: Path) -> None:
    training, _ = loaded(name, tmp_path)
    (container,) = pod(name)["containers"]
    assert container["command"] == ["scorer", "train", "run", "/etc/scorestream/training.yaml"]
    assert container["image"].endswith({"trees": "-training", "network": "-network"}[training.recipe.label])
    assert training.publish.password_file is not None
    assert training.signature is None  # that of the champion
    cores = int(container["resources"]["limits"]["cpu"])
    assert training.workers == cores
    for part in ("requests", "limits"):
        assert container["resources"][part].get("nvidia.com/gpu", 0) == training.gpus
    assert not training.gpus or training.gpus == training.workers
    of_gpus = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert (of_gpus in pod(name).get("tolerations", [])) == bool(training.gpus)
    assert training.snapshot.hold_out >= 7 * training.gate.block  # intervals are drawn from its blocks
    scorers = of_kind(rendered(name), "StatefulSet")["flight-delay-scorer"]
    assert written(name)["scorer.yaml"] == yaml.safe_load(configuration(rendered(name), scorers))


@needs_helm
def test_the_placement_of_the_values_is_that_of_the_pods() -> None:
    values = yaml.safe_load((chart.EXAMPLES / f"{PLACED}.yaml").read_text())["training"]
    placed = pod(PLACED)
    assert placed["nodeSelector"] == values["nodeSelector"]
    assert placed["priorityClassName"] == values["priorityClassName"]
    assert [toleration["key"] for toleration in placed["tolerations"]] == ["node.example.com/pool", "nvidia.com/gpu"]
    assert placed["affinity"] == {"nodeAffinity": {REQUIRED: of_kinds(values["gpu"]["kinds"])}}


@needs_helm
def test_a_kind_of_gpu_is_required_beside_the_affinity_of_the_values_on_every_node() -> None:
    preferred = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]}}
    gpu = {"resource": "nvidia.com/mig-3g.40gb", "kinds": ["H100"], "label": "gpu-kind"}
    files = [chart.EXAMPLES / f"{part}.yaml" for part in TRAINING[NODES]]
    things = chart.render(files, {"training.gpu": gpu, "training.affinity": preferred})
    job_pod = of_kind(things, "CronJob")["flight-delay-training"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    runtime = of_kind(things, "TrainingRuntime")["flight-delay-training-nodes"]["spec"]["template"]["spec"]
    node_pod = runtime["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    terms = of_kinds(["H100"], "gpu-kind")
    for spec, count in ((job_pod, 2), (node_pod, 1)):
        assert spec["affinity"] == {"nodeAffinity": {**preferred["nodeAffinity"], REQUIRED: terms}}
        assert spec["containers"][0]["resources"]["limits"]["nvidia.com/mig-3g.40gb"] == count


def of_kinds(kinds: list[str], label: str = "nvidia.com/gpu.product") -> Object:
    """Return the affinity that requires nodes with one of these kinds of GPU."""
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": label, "operator": "In", "values": kinds}]}]}


def test_a_quota_limits_the_runs_of_each_type() -> None:
    limited = {}
    for quota in manifests.quotas().values():
        (scope,) = quota["spec"]["scopeSelector"]["matchExpressions"]
        assert (scope["scopeName"], scope["operator"], [*quota["spec"]["hard"]]) == ("PriorityClass", "In", ["pods"])
        assert [quota["metadata"]["name"]] == scope["values"]
        limited[scope["values"][0]] = int(quota["spec"]["hard"]["pods"])
    assert limited == {"scoring-training": 4, "scoring-training-gpu": 1}
    assert limited.keys() <= priority_classes().keys()


@needs_helm
def test_training_has_a_lower_priority_than_every_scorer() -> None:
    for name in TRAINING:
        priority_class = priority_classes()[pod(name)["priorityClassName"]]
        classes = {
            workload["spec"]["template"]["spec"].get("priorityClassName")
            for example in EXAMPLES
            for workload in of_kind(rendered(example), "StatefulSet").values()
        }
        others = [priority_classes()[other]["value"] for other in classes - {None}]
        assert priority_class["value"] < min(0, *others)  # a pod without a class has 0
        assert priority_class["preemptionPolicy"] == "Never"


@needs_helm
def test_the_trigger_reads_the_offsets_that_runs_commit(tmp_path: Path) -> None:
    _, scorer = loaded(BY_EVENT, tmp_path)
    metadata = trigger()
    assert set(metadata) == KEDA | {"activationLagThreshold", "scaleToZeroOnInvalidOffset"}
    assert metadata["consumerGroup"] == f"{scorer.name}.training"
    assert metadata["topic"] == scorer.labels.topic
    assert metadata["bootstrapServers"] == scorer.kafka.bootstrap_servers
    assert metadata["offsetResetPolicy"] == "earliest"  # `latest` would report a permanent lag of 1 per partition
    assert int(metadata["activationLagThreshold"]) > 100 * topic(metadata["topic"])["partitions"]
    switched_off = ("allowIdleConsumers", "excludePersistentLag", "limitToPartitionsWithLag", "scaleToZeroOnInvalidOffset")
    assert {json.loads(metadata[key]) for key in switched_off} == {False}


@needs_helm
@pytest.mark.parametrize("name", TRAINING)
def test_events_and_labels_are_kept_for_longer_than_the_window(name: str, tmp_path: Path) -> None:
    training, scorer = loaded(name, tmp_path)
    longest = training.snapshot.window + job(name)["activeDeadlineSeconds"] * 1_000 + seconds("1d") * 1_000
    for topic_name in (*scorer.input.topics, str(scorer.labels.topic)):
        assert int(topic(topic_name)["config"]["retention.ms"]) > longest


@needs_helm
@pytest.mark.parametrize("user", ["training", "training-trigger"])
def test_each_user_has_exactly_the_rights_that_its_work_needs(user: str, tmp_path: Path) -> None:
    _, scorer = loaded(BY_EVENT, tmp_path)
    named = {"events": scorer.input.topics[0], "outcomes": scorer.labels.topic}
    components = {"training": (rights.training, rights.recorder, rights.run_reader), "training-trigger": (rights.trigger,)}
    needed = {name: right for component in components[user] for name, right in component(scorer.name).items()}
    expected = {
        (KINDS[kind], named.get(name.removeprefix(f"{scorer.name}."), name), operation.name.title())
        for kind, name, operation in needed.values()
    }
    rules = of_kind(rendered(KAFKA), "KafkaUser")[user]["spec"]["authorization"]["acls"]
    granted = {(r["resource"]["type"], r["resource"]["name"], operation) for r in rules for operation in r["operations"]}
    assert granted == expected
    assert all("patternType" not in rule["resource"] for rule in rules)


@needs_helm
def test_the_other_objects_of_the_cluster_are_those_of_the_scorers() -> None:
    def without_retention(name: str) -> dict[str, Object]:
        objects = {title(thing): json.loads(json.dumps(thing)) for thing in rendered(name)}
        del objects["KafkaTopic/flights"]["spec"]["config"]["retention.ms"]
        return objects

    ours, theirs = without_retention(KAFKA), without_retention("kafka/cluster")
    topics = {"KafkaTopic/flights.outcomes", "KafkaTopic/flight-delay.runs"}
    assert set(ours) - set(theirs) == {*topics, "KafkaUser/training", "KafkaUser/training-trigger"}
    assert {name: ours[name] for name in theirs} == theirs


def nodes() -> Object:
    """Return the template of the pods of a training on several nodes."""
    (replicated,) = of_kind(rendered(NODES), "TrainingRuntime")["flight-delay-training-nodes"]["spec"]["template"]["spec"][
        "replicatedJobs"
    ]
    template: Object = replicated["template"]["spec"]["template"]
    return template


@needs_helm
@pytest.mark.parametrize(
    ("recipe", "image"),
    [
        ({"command": ["python", "train.py"], "image": "registry.example.com/own:1"}, "registry.example.com/own:1"),
        ({"command": ["python", "train.py"]}, "registry.example.com/team/scorestream:0.1.0-training"),
        ("network", "registry.example.com/team/scorestream:0.1.0-network"),
    ],
)
def test_a_recipe_runs_in_its_image(recipe: Any, image: str) -> None:
    files = [chart.EXAMPLES / "cpu.yaml", chart.EXAMPLES / "training.yaml"]
    things = chart.render(files, {"training.config.recipe": recipe})
    spec = of_kind(things, "CronJob")["flight-delay-training"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert [container["image"] for container in spec["containers"]] == [image]


def train_job() -> Object:
    thing: Object = yaml.safe_load((SOURCES / "train_job.yaml").read_text())
    return thing


@needs_helm
def test_nodes_have_the_volume_and_each_other_and_nothing_else() -> None:
    (container,), job_pod = nodes()["spec"]["containers"], pod(NODES)
    labels = nodes()["metadata"]["labels"]
    policies = of_kind(rendered(NODES), "NetworkPolicy")
    assert [name for name, policy in policies.items() if matches(policy["spec"]["podSelector"], labels)] == [
        "flight-delay-training-nodes"
    ]
    peers = [{"podSelector": policies["flight-delay-training-nodes"]["spec"]["podSelector"]}]
    assert policies["flight-delay-training-nodes"]["spec"]["ingress"] == [{"from": peers}]
    assert [rule["to"] for rule in policies["flight-delay-training-nodes"]["spec"]["egress"] if "ports" not in rule] == [peers]
    assert container["securityContext"] == STRICT
    alike = (
        "serviceAccountName",
        "automountServiceAccountToken",
        "priorityClassName",
        "restartPolicy",
        "securityContext",
        "tolerations",
    )
    assert {key: nodes()["spec"][key] for key in alike} == {key: job_pod[key] for key in alike}
    assert [volume for volume in nodes()["spec"]["volumes"] if volume not in job_pod["volumes"]] == []
    assert {volume["name"] for volume in nodes()["spec"]["volumes"]} == {"runs", "tmp"}
    assert container["image"] == job_pod["containers"][0]["image"]


@needs_helm
def test_a_train_job_is_valid_and_continues_a_started_run(tmp_path: Path) -> None:
    training, _ = loaded(NODES, tmp_path)
    thing, (container,) = train_job(), nodes()["spec"]["containers"]
    named = {**thing, "metadata": {**thing["metadata"], "name": "flight-delay-training-nodes"}}
    validate(named)
    spec = thing["spec"]
    assert spec["runtimeRef"]["name"] in of_kind(rendered(NODES), spec["runtimeRef"]["kind"])
    trainer = spec["trainer"]
    assert trainer["command"] == container["command"] == ["torchrun"]
    module, folder, epochs = trainer["args"][1:]
    assert importlib.util.find_spec(module)
    (link,) = (line for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("RUN ln -s"))
    assert {"name": "PYTHONPATH", "value": link.split()[-1]} in container["env"]
    assert Path(folder).parents[2] == training.folder
    assert int(epochs) == training.search.rungs[-1]
    assert trainer["numNodes"] * trainer["numProcPerNode"] in (2, 4, 8)
    assert trainer["numProcPerNode"] == container["resources"]["limits"]["nvidia.com/gpu"]
    trainer["replicaz"] = 3
    with pytest.raises(Invalid, match="replicaz"):
        validate(named)
