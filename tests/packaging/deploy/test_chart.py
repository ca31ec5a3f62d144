"""The chart: values and their schema, messages for invalid values, and the independence of releases."""

import json
import re
import shutil
import tarfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel, ByteSize, TypeAdapter

from publisher.kafka import client_properties
from scorer.settings import Settings, registry_properties
from tests.packaging.deploy import manifests
from tests.packaging.deploy.chart import CHART, EXAMPLES, KUBERNETES, RenderingError, helm, needs_helm, render
from tests.packaging.deploy.manifests import Object, configuration, of_kind, pod_of, rendered, workloads
from tests.support.environment import ROOT

CPU = EXAMPLES / "cpu.yaml"
SECOND = EXAMPLES / "second.yaml"
CHURN = EXAMPLES / "churn.yaml"
MIB = 1 << 20
DIGEST = f"sha256:{'a' * 64}"
TRAINS = {
    "training.enabled": True,
    "training.signing.secret": "training-signing",
    "config.labels.topic": "outcomes",
    "registry.pushSecret": "writer",
}
REQUIRED_NODES: dict[str, Any] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}


def all_values(values: Mapping[str, Any], schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the path, the default and the schema of each value; a section has the default None."""
    for key, default in values.items():
        described = schema["properties"][key]
        is_section = "properties" in described
        yield f"{path}{key}", None if is_section else default, described
        if is_section:
            yield from all_values(default, described, f"{path}{key}.")


def defaults() -> tuple[dict[str, Any], dict[str, Any]]:
    return yaml.safe_load((CHART / "values.yaml").read_text()), json.loads((CHART / "values.schema.json").read_text())


def test_every_value_is_described_in_the_schema_and_above_it_in_the_file() -> None:
    values, schema = defaults()
    text = (CHART / "values.yaml").read_text()
    for path, _, described in all_values(values, schema):
        name = path.rpartition(".")[2]
        assert re.search(rf"^ *# {re.escape(described['description'])}\n *{re.escape(name)}:", text, re.MULTILINE), path


def test_every_value_of_the_schema_has_a_default_and_unknown_values_are_rejected() -> None:
    values, schema = defaults()

    def check(values: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
        assert schema["additionalProperties"] is False
        assert set(schema["properties"]) - {"global"} == set(values)
        for key, described in schema["properties"].items():
            if "properties" in described:
                check(values[key], described)

    check(values, schema)


def test_the_chart_has_the_version_of_the_product() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert [chart["version"], chart["appVersion"]] == [version, version]


def test_templates_name_no_model() -> None:
    for path in (CHART / "templates").iterdir():
        assert "flight" not in path.read_text(), path.name


@needs_helm
@pytest.mark.parametrize("files", manifests.EXAMPLES.values(), ids=manifests.EXAMPLES)
def test_helm_lint_finds_no_fault(files: tuple[str, ...]) -> None:
    values = [argument for name in files for argument in ("--values", EXAMPLES / f"{name}.yaml")]
    assert "0 chart(s) failed" in helm("lint", "--strict", "--kube-version", KUBERNETES, CHART, *values)


@needs_helm
def test_helm_lint_without_values_ends_in_no_error_of_a_template() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", "--kube-version", KUBERNETES, CHART)


@needs_helm
def test_the_package_has_all_files_of_the_chart_and_no_examples(tmp_path: Path) -> None:
    helm("package", CHART, "--destination", str(tmp_path))
    (package,) = tmp_path.glob("scorestream-*.tgz")
    with tarfile.open(package) as archive:
        names = {name.removeprefix("scorestream/") for name in archive.getnames()}
    assert {"Chart.yaml", "values.yaml", "values.schema.json", "README.md", "files/alerts.yaml"} <= names
    assert {f"files/dashboards/{path.name}" for path in (CHART / "files" / "dashboards").glob("*.json")} <= names
    assert not any(name.startswith("examples") for name in names)


@needs_helm
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"image.repository": ""}, "image.repository is empty: set it to"),
        ({"kafka.bootstrapServers": ""}, "kafka.bootstrapServers is empty: set it to host:port"),
        ({"config.input.topics": []}, "config.input.topics is empty: list the topics"),
        ({"config.model.source": ""}, "config.model.source is empty: set it to"),
        ({"config.model": None}, "config.model.source is empty: set it to"),
        ({"config.input": None}, "config.input.topics is empty: list the topics"),
        ({"config.input.topics": "clicks"}, 'config.input.topics is "clicks", but it is a list: write [clicks]'),
        ({"config.input.topics": [2024]}, "config.input.topics has 2024, which is not a text"),
        ({"config.model.endpoints": "a:1"}, 'config.model.endpoints is "a:1", but it is a list: write ["a:1"]'),
        ({"config.tables": ["t"]}, "config.tables: Invalid type"),
        ({"config.tables.t": "t.rows"}, "config.tables.t: Invalid type"),
        ({"config.tables.t": {"key": "id"}}, "config.tables.t.topic is null, which is not a text"),
        ({"config.tables.t": {"topic": "t.rows", "keys": "id"}}, "config.tables.t: Additional property keys is not allowed"),
        ({"config.name": 7}, "config.name is 7, which is not a text"),
        ({"config.model.source": "host.io/m:prod"}, "write host.io/m, and set config.model.tag to prod"),
        ({"config.model.source": f"host.io/m@{DIGEST}"}, "write host.io/m, and set config.model.tag to the digest"),
        ({"config.model.source": "oci://host.io/m"}, "a repository has no scheme: write host.io/m"),
        ({"config.modle": {}}, "config: Additional property modle is not allowed"),
        ({"config.input.topic": "clicks"}, "config.input: Additional property topic is not allowed"),
        ({"relays": [{"name": "b", "config": {"lane": 1}}]}, "config: Additional property lane is not allowed"),
        ({"training.config.recipes": "trees"}, "training.config: Additional property recipes is not allowed"),
        ({"config.kafka.security.password": "x"}, "config.kafka.security.password is a secret"),
        ({"config.kafka.security.password": "${X}"}, "config.kafka.security.password is a secret"),
        ({"config.kafka.extra": {"ssl.key.password": "x"}}, "config.kafka.extra.ssl.key.password is a secret"),
        ({"config.schema_registry.url": "https://a:b@c"}, "config.schema_registry.url is a URL with a password"),
        (
            {"relays": [{"name": "b", "config": {"source": {"security": {"password": "x"}}}}]},
            "config of the relay b.source.security.password is a secret",
        ),
        ({"cache.size": "10Mi"}, "set it to at least 256Mi"),
        ({"config.model.max_bytes": "2GiB"}, "such a version never fits: set a larger cache.size"),
        ({"config.model.cache_bytes": "4GiB"}, "the kubelet would end pods: set a larger cache.size"),
        ({"config.model.cache_bytes": 4294967296}, "the kubelet would end pods: set a larger cache.size"),
        ({"registry.pushSecret": "", "rolloutController.enabled": True}, "registry.pushSecret is empty"),
        ({"autoscaling.enabled": False, "autoscaling.pausedReplicas": 0}, "set scorer.replicas"),
        (
            {"strimzi.enabled": True, "strimzi.cluster": "events", "strimzi.partitions": 6},
            "lower autoscaling.maxReplicas",
        ),
        ({"config.replica": "a"}, "remove config.replica"),
        ({"config.http.listen": "0.0.0.0:80"}, "remove config.http.listen"),
        ({"config.name": "a/b"}, "set a shorter config.name"),
        ({"config.model.device": "cuda"}, "set gpu.enabled to true"),
        ({"gpu.enabled": True, "config.model.device": "cpu"}, "remove config.model.device, or set gpu.enabled to false"),
        ({"kafka.encryption": False}, "set kafka.encryption to true"),
        ({"registry.ca.secret": "a", "registry.ca.configMap": "b"}, "set the one that has the certificate authority"),
        ({"autoscaling.maxReplicas": None}, "set it to the number of partitions"),
        ({"autoscaling.minReplicas": 20}, "lower minReplicas"),
        ({"monitoring.serviceMonitor.enabled": True}, "would be scraped twice: disable one"),
        ({"relays": [{"name": "b", "config": {}}, {"name": "b", "config": {}}]}, "give each its own name"),
        ({"files": {"scorer.yaml": "name: a"}}, "put its settings into config"),
        ({"config.model.policy": "policy.yaml"}, "config.model.policy is policy.yaml, but files has no policy.yaml"),
        (
            {"config.schema_registry.extra": {"ssl.ca.location": "ca.pem"}},
            "config.schema_registry.extra.ssl.ca.location is ca.pem, but files has no ca.pem",
        ),
        ({"schemaRegistry.secret": "schemas"}, "config.schema_registry.url is empty: set it to the URL"),
        ({"training.enabled": True}, "config.labels.topic is empty: set it to"),
        ({"training.enabled": True, "config.labels.topic": "outcomes"}, "training.signing.secret is empty: set it to"),
        ({**TRAINS, "training.gpu.kinds": ["NVIDIA-L4"]}, "training.config.gpus is 0: set it to the number of GPUs"),
        (
            {**TRAINS, "training.config.gpus": 1, "training.gpu.kinds": ["NVIDIA-L4"], "training.affinity": REQUIRED_NODES},
            "both set: add nvidia.com/gpu.product to the terms",
        ),
        ({"training.gpu.kinds": "NVIDIA-L4"}, "training.gpu.kinds: Invalid type"),
        ({"relays": [{"name": "b", "config": {}}]}, "set config.region of the release"),
        (
            {"config.region": "a", "relays": [{"name": "b", "config": {"source": {"region": "b"}}}]},
            "set it to host:port of the brokers of the other region",
        ),
        ({"strimzi.enabled": True}, "strimzi.cluster is empty: set it to"),
        (
            {"strimzi.enabled": True, "strimzi.cluster": "events", "autoscaling": {"enabled": False, "maxReplicas": None}},
            "strimzi.partitions is empty: set it to",
        ),
        (
            {"strimzi.enabled": True, "strimzi.cluster": "events", "kafka.authentication": "plain"},
            "creates users for tls and scram-sha-512",
        ),
        ({"scorer.replicaz": 3}, "Additional property replicaz is not allowed"),
        ({"cache.size": "2GB"}, "Does not match pattern"),
    ],
)
def test_values_that_cannot_work_are_rejected_with_a_remedy(values: dict[str, Any], message: str) -> None:
    with pytest.raises(RenderingError) as rejected:
        render([CPU], values)
    assert message in " ".join(str(rejected.value).split())


@needs_helm
def test_the_secrets_of_client_properties_are_rejected_and_all_other_properties_accepted() -> None:
    for path, harmless, secret in (
        ("config.kafka.extra", client_properties.ALLOWED, client_properties.SECRET),
        ("config.schema_registry.extra", registry_properties.ALLOWED, registry_properties.SECRET),
    ):
        render([CPU], {path: dict.fromkeys(harmless, "/1")})
        render([CPU], {path: dict.fromkeys(secret, "${NAME}")})
        for name in secret:
            with pytest.raises(RenderingError, match=f"{path}.{name} is a secret"):
                render([CPU], {path: {name: "1"}})


@needs_helm
def test_a_secret_beside_a_variable_is_rejected() -> None:
    for url in ("https://user:secret@registry/${PATH}", "https://user:${NAME}@registry"):
        with pytest.raises(RenderingError, match="a URL with a password"):
            render([CPU], {"config.schema_registry.url": url})
    render([CPU], {"config.schema_registry.extra": {"basic.auth.user.info": "user:${NAME}"}})
    with pytest.raises(RenderingError, match="is a secret"):
        render([CPU], {"config.schema_registry.extra": {"basic.auth.user.info": "user:secret${NAME}"}})


@needs_helm
@pytest.mark.parametrize("release", ["a.b", "9lives", "x" * 41, "flight-delay-shadow", "flight-delay-relay-us"])
def test_a_release_name_that_could_collide_is_rejected(release: str) -> None:
    with pytest.raises(RenderingError, match="release name"):
        render([CPU], release=release)


def settings_of(things: list[Object]) -> dict[str, Any]:
    scorers = next(workload for name, workload in workloads(things).items() if name.endswith("-scorer"))
    values: dict[str, Any] = yaml.safe_load(configuration(things, scorers))
    return values


def kafka_names(things: list[Object]) -> set[str]:
    """Return the names in Kafka that belong to a release: its group, topics and prefixes of transactional ids."""
    values = settings_of(things)
    name, output, dead = values["name"], values["output"]["topic"], values["dead_letter"]["topic"]
    groups = {name, f"{name}.shadow", f"{name}.rollout", f"{name}.training", f"{name}.training.lease"}
    topics = {f"{name}.status", f"{name}.swaps", f"{name}.rollouts", output, f"{output}.corrections", f"{output}.shadow"}
    topics |= {dead, f"{dead}.replayed", f"{name}.runs"}
    prefixes = {f"{name}/", f"{name}.shadow/"}
    triggers = [trigger for scaled in of_kind(things, "ScaledObject").values() for trigger in scaled["spec"]["triggers"]]
    assert {trigger["metadata"]["consumerGroup"] for trigger in triggers} == {name}
    return groups | topics | prefixes


@needs_helm
def test_a_feature_log_has_a_topic_and_its_writer_and_readers_have_rights() -> None:
    values = {"strimzi.enabled": True, "strimzi.cluster": "events", "rolloutController.enabled": True}
    toolbox = {"toolbox.enabled": True, "toolbox.identities": ["auditor", "rescorer"]}
    things = render([CPU], {**values, **toolbox, "registry.pushSecret": "writer", "config.features.topic": "log"})
    (topic,) = [each for each in of_kind(things, "KafkaTopic").values() if each["spec"]["topicName"] == "log"]
    scores = next(each for each in of_kind(things, "KafkaTopic").values() if each["spec"]["topicName"].endswith(".scores"))
    assert topic["spec"]["partitions"] == scores["spec"]["partitions"]
    rights = {
        name.rpartition(".")[2]: acl["operations"]
        for name, user in of_kind(things, "KafkaUser").items()
        for acl in user["spec"]["authorization"]["acls"]
        if acl["resource"]["name"] == "log"
    }
    assert rights == {
        "scorer": ["Write", "DescribeConfigs"],
        "auditor": ["Read"],
        "rescorer": ["Read"],
        "rollout-controller": ["Read"],
    }


WITHOUT_NAMES = {"config.name": None, "config.output": None, "config.dead_letter": None}
"""Values that remove the names which the example takes from the example of the cluster."""
EVERYTHING = {
    **WITHOUT_NAMES,
    "shadow.enabled": True,
    "rolloutController.enabled": True,
    "registry.pushSecret": "registry-writer",
}


def rule_selectors(things: list[Object]) -> set[tuple[str, str]]:
    """Return the namespace and the service that the rules of a release select."""
    (rule,) = of_kind(things, "PrometheusRule").values()
    text = json.dumps(rule["spec"]).replace('\\"', '"')
    selectors = re.findall(r"\b(?:scorer|publisher)_\w+\{([^}]*)\}", text)
    assert selectors
    return {
        (re.search(r'namespace="([^"]*)"', selector)[1], re.search(r'service="([^"]*)"', selector)[1])  # type: ignore[index]
        for selector in selectors
    }


@needs_helm
def test_two_releases_in_one_namespace_share_nothing() -> None:
    first = render([CPU], EVERYTHING, release="flight-delay")
    second = render([SECOND], EVERYTHING, release="card-fraud")
    objects = [{(thing["kind"], thing["metadata"]["name"]) for thing in things} for things in (first, second)]
    assert objects[0] & objects[1] == set()
    assert kafka_names(first) & kafka_names(second) == set()
    pods = [workload["spec"]["template"]["metadata"]["labels"] for workload in workloads(second).values()]
    selectors = [
        thing["spec"].get("selector") or thing["spec"]["podSelector"]
        for thing in first
        if thing["kind"] in ("Service", "StatefulSet", "Deployment", "PodDisruptionBudget", "NetworkPolicy", "PodMonitor")
    ]
    assert not any(manifests.matches(selector, labels) for selector in selectors for labels in pods)
    assert rule_selectors(first) & rule_selectors(second) == set()
    assert secrets_of(first) & secrets_of(second) <= {"registry", "registry-writer"}
    assert dashboard_uids(first) & dashboard_uids(second) == set()


@needs_helm
def test_two_namespaces_with_the_same_release_share_nothing() -> None:
    first, second = (render([CPU], EVERYTHING, namespace=namespace) for namespace in ("scoring", "staging"))
    assert {thing["metadata"]["namespace"] for thing in second} == {"staging"}
    assert kafka_names(first) & kafka_names(second) == set()
    assert rule_selectors(first) & rule_selectors(second) == set()
    assert dashboard_uids(first) & dashboard_uids(second) == set()


def secrets_of(things: list[Object]) -> set[str]:
    return {
        volume["secret"]["secretName"]
        for workload in workloads(things).values()
        for volume in pod_of(workload)["volumes"]
        if "secret" in volume
    }


def dashboard_uids(things: list[Object]) -> set[str]:
    texts = [
        text for name, thing in of_kind(things, "ConfigMap").items() if "-dashboard-" in name for text in thing["data"].values()
    ]
    assert texts
    return {json.loads(text)["uid"] for text in texts}


@needs_helm
def test_names_in_kafka_are_derived_from_namespace_and_release() -> None:
    values = settings_of(render([CPU], WITHOUT_NAMES))
    assert values["name"] == "scoring.flight-delay"
    assert values["output"]["topic"] == "scoring.flight-delay.scores"
    assert values["dead_letter"]["topic"] == "scoring.flight-delay.dead"


@needs_helm
def test_four_images_of_the_largest_size_fit_into_the_cache_and_another_version_into_its_volume() -> None:
    for size, mebibytes in (("2Gi", 2_048), ("40Gi", 40_960), ("300Mi", 300)):
        things = render([CPU], {"cache.size": size})
        model = settings_of(things)["model"]
        cache, version = (TypeAdapter(ByteSize).validate_python(model[key]) for key in ("cache_bytes", "max_bytes"))
        assert 8 * version <= cache
        assert cache + version < mebibytes * MIB
        pod = pod_of(of_kind(things, "StatefulSet")["flight-delay-scorer"])
        limits = {volume["name"]: volume["emptyDir"]["sizeLimit"] for volume in pod["volumes"] if "emptyDir" in volume}
        assert limits["cache"] == size
        storage = pod["containers"][0]["resources"]["limits"]["ephemeral-storage"]
        assert int(storage.removesuffix("Mi")) >= mebibytes + 64


@needs_helm
def test_a_digest_fixes_the_image() -> None:
    digest = f"sha256:{'a' * 64}"
    for workload in workloads(render([CPU], {"image.digest": digest})).values():
        assert pod_of(workload)["containers"][0]["image"] == f"registry.example.com/team/scorestream:0.1.0-cpu@{digest}"


@needs_helm
def test_a_change_of_the_configuration_restarts_the_scorers_and_a_change_of_the_release_does_not() -> None:
    def template(values: dict[str, Any]) -> Any:
        return of_kind(render([CPU], values), "StatefulSet")["flight-delay-scorer"]["spec"]["template"]

    assert template({"monitoring.interval": "30s"}) == template({})
    assert template({"config.delivery": "at-least-once"}) != template({})
    assert template({"files": {"policy.yaml": "trust: []"}}) != template({})


@needs_helm
def test_autoscaling_can_be_paused_at_zero() -> None:
    (scaled,) = of_kind(render([CPU], {"autoscaling.pausedReplicas": 0}), "ScaledObject").values()
    assert scaled["metadata"]["annotations"] == {"autoscaling.keda.sh/paused-replicas": "0"}
    arguments = ("flight-delay", CHART, "--kube-version", KUBERNETES, "--values", CPU, "--set", "autoscaling.pausedReplicas=0")
    assert "autoscaling.keda.sh/paused-replicas" in helm("template", *arguments)
    (running,) = of_kind(rendered("cpu"), "ScaledObject").values()
    assert "annotations" not in running["metadata"]


@needs_helm
def test_a_number_of_scorers_that_the_chart_writes_is_marked_for_a_later_upgrade_with_autoscaling() -> None:
    for is_scaled in (True, False):
        things = render([CPU], {"autoscaling.enabled": is_scaled, "scorer.replicas": 4})
        scorers = of_kind(things, "StatefulSet")["flight-delay-scorer"]
        assert scorers["spec"].get("replicas") == (None if is_scaled else 4)
        assert ("scorestream/replicas" in scorers["metadata"].get("annotations", {})) == (not is_scaled)


@needs_helm
def test_large_numbers_are_written_without_an_exponent() -> None:
    files = [EXAMPLES / f"{name}.yaml" for name in ("cpu", "training", "training-on-labels")]
    numbers = (
        "autoscaling.lagThreshold",
        "training.onLabels.count",
        "training.activeDeadlineSeconds",
        "config.input.expanded_bytes",
    )
    things = render(files, dict.fromkeys(numbers, 30000000) | {"strimzi.retentionMs": 3_024_000_000})
    assert not re.search(r"\de\+\d", yaml.safe_dump_all(thing for thing in things if thing["kind"] != "ConfigMap"))
    assert settings_of(things)["input"]["expanded_bytes"] == 30_000_000
    (scaled,) = of_kind(things, "ScaledObject").values()
    assert scaled["spec"]["triggers"][0]["metadata"]["lagThreshold"] == "30000000"


@needs_helm
def test_names_that_look_like_numbers_stay_texts() -> None:
    values = {"config.input.topics": ["2024"], "config.name": "7", "strimzi.enabled": True, "strimzi.cluster": "events"}
    for thing in render([CPU], values | {"strimzi.inputs": True}, namespace="1234"):
        manifests.validate(thing)
        assert thing["metadata"]["namespace"] == "1234"


@needs_helm
def test_network_policies_follow_the_configuration() -> None:
    policy = of_kind(rendered("sasl"), "NetworkPolicy")["flight-delay-scorer"]["spec"]
    ports = {port["port"]: rule.get("to") for rule in policy["egress"] for port in rule["ports"]}
    assert set(ports) == {53, 9096, 443, 4318}
    assert ports[9096] == [{"ipBlock": {"cidr": "10.20.0.0/16"}}]
    assert ports[4318] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "observability"}}}]
    assert ports[443] is None
    relay = of_kind(rendered("eu-west"), "NetworkPolicy")["flight-delay-relay-us-east"]["spec"]
    assert {port["port"] for rule in relay["egress"] for port in rule["ports"]} == {53, 9093, 9094}


@needs_helm
def test_keda_logs_in_with_the_mechanism_of_the_scorers() -> None:
    things = rendered("sasl")
    (authentication,) = of_kind(things, "TriggerAuthentication").values()
    assert authentication["spec"]["secretTargetRef"] == [
        {"parameter": parameter, "name": "flight-delay-autoscaler-kafka", "key": parameter}
        for parameter in ("username", "password")
    ]
    (scaled,) = of_kind(things, "ScaledObject").values()
    assert [trigger["metadata"]["topic"] for trigger in scaled["spec"]["triggers"]] == ["flights", "flights.late"]
    assert {(trigger["metadata"]["sasl"], trigger["metadata"]["tls"]) for trigger in scaled["spec"]["triggers"]} == {
        ("scram_sha512", "enable")
    }
    assert settings_of(list(things))["kafka"]["security"] == {
        "protocol": "SASL_SSL",
        "mechanism": "SCRAM-SHA-512",
        "password_file": "/run/secrets/kafka/password",
    }


@needs_helm
@pytest.mark.parametrize(
    ("authentication", "is_encrypted", "protocol", "parameters"),
    [
        ("tls", True, "SSL", ["ca", "cert", "key"]),
        ("none", True, "SSL", ["ca"]),
        ("none", False, "PLAINTEXT", None),
        ("plain", True, "SASL_SSL", ["ca", "username", "password"]),
        ("scram-sha-256", False, "SASL_PLAINTEXT", ["username", "password"]),
    ],
)
def test_scorers_and_keda_connect_in_the_same_way(
    authentication: str, is_encrypted: bool, protocol: str, parameters: list[str] | None
) -> None:
    things = render([CPU], {"kafka.authentication": authentication, "kafka.encryption": is_encrypted})
    security = settings_of(things)["kafka"]["security"]
    assert security["protocol"] == protocol
    assert security.get("mechanism") == (authentication.upper() if protocol.startswith("SASL") else None)
    (scaled,) = of_kind(things, "ScaledObject").values()
    (trigger,) = scaled["spec"]["triggers"]
    assert ("tls" in trigger["metadata"]) == is_encrypted
    credentials = of_kind(things, "TriggerAuthentication")
    if parameters is None:
        assert credentials == {}
        assert "authenticationRef" not in trigger
        assert not any(secret.endswith("-kafka") for secret in secrets_of(things))
    else:
        targets = credentials["flight-delay-autoscaler"]["spec"]["secretTargetRef"]
        assert [target["parameter"] for target in targets] == parameters


@needs_helm
def test_the_certificate_authority_of_the_registry_is_mounted_and_configured() -> None:
    things = rendered("sasl")
    assert settings_of(list(things))["model"]["ca_file"] == "/run/secrets/registry-ca/ca.crt"
    for workload in workloads(things).values():
        volumes = {volume["name"]: volume for volume in pod_of(workload)["volumes"]}
        assert volumes["registry-ca"]["configMap"] == {"name": "company-ca"}
        assert pod_of(workload)["imagePullSecrets"] == [{"name": "registry"}]


def notes_of(files: list[Path], folder: Path, values: Mapping[str, Any] | None = None) -> str:
    """Return the notes that Helm prints after an installation. Helm does not render them without a cluster."""
    copied = folder / "chart"
    shutil.copytree(CHART, copied)
    notes = (copied / "templates" / "NOTES.txt").read_text()
    (copied / "templates" / "_notes.tpl").write_text('{{- define "tests.notes" -}}\n' + notes + "{{- end -}}\n")
    (copied / "templates" / "notes.yaml").write_text('notes: {{ include "tests.notes" . | toJson }}\n')
    arguments: list[str | Path] = ["template", "flight-delay", copied, "--kube-version", KUBERNETES]
    for file in files:
        arguments += ["--values", file]
    for path, value in (values or {}).items():
        arguments += ["--set-json", f"{path}={json.dumps(value)}"]
    notes = yaml.safe_load(helm(*arguments, "--show-only", "templates/notes.yaml"))["notes"]
    assert isinstance(notes, str)
    return notes


EXTRA_VARIABLE = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "tokens", "key": "token"}}}


@needs_helm
@pytest.mark.parametrize(
    "names", [("cpu", "rollouts", "eu-west", "training", "training-on-labels"), ("cpu", "sasl"), ("churn",)]
)
def test_the_notes_list_all_secrets_of_the_release(names: tuple[str, ...], tmp_path: Path) -> None:
    files = [EXAMPLES / f"{name}.yaml" for name in names]
    values = {"extraEnv": [EXTRA_VARIABLE]}
    listed = set(re.findall(r"^  ([\w-]+) \(", notes_of(files, tmp_path, values), re.MULTILINE))
    things = render(files, values)
    used = set(re.findall(r'"(?:secretName|imagePullSecrets)": (?:\[{"name": )?"([^"]+)"', json.dumps(things)))
    used |= set(re.findall(r'"secretKeyRef": {"key": "[^"]+", "name": "([^"]+)"', json.dumps(things, sort_keys=True)))
    credentials = of_kind(things, "TriggerAuthentication").values()
    used |= {target["name"] for thing in credentials for target in thing["spec"]["secretTargetRef"]}
    assert listed == used


@needs_helm
def test_the_notes_name_the_config_map_and_the_missing_credentials_of_the_promoter(tmp_path: Path) -> None:
    complete = notes_of([CHURN], tmp_path / "complete")
    assert "The ConfigMap registry-ca (ca.crt) must exist too" in complete
    assert "registry.pushSecret" not in complete
    incomplete = notes_of([CHURN], tmp_path / "incomplete", {"registry.pushSecret": "", "registry.ca.configMap": ""})
    assert "ConfigMap" not in incomplete
    assert "set registry.pushSecret to promote versions in it" in incomplete


@needs_helm
def test_every_pod_that_decodes_events_has_the_login_and_the_authority_of_the_schema_registry() -> None:
    values = {"shadow.enabled": True, "rolloutController.enabled": True}
    things = render([CHURN], values, release="churn")
    extra = settings_of(things)["schema_registry"]["extra"]
    assert extra == {
        "ssl.ca.location": "/run/secrets/schema-registry/ca.crt",
        "basic.auth.user.info": "${SCHEMA_REGISTRY_USERNAME}:${SCHEMA_REGISTRY_PASSWORD}",
    }
    for workload in workloads(things).values():
        pod = pod_of(workload)
        (container,) = pod["containers"]
        keys = {variable["name"]: variable.get("valueFrom") for variable in container["env"]}
        for variable, key in (("SCHEMA_REGISTRY_USERNAME", "username"), ("SCHEMA_REGISTRY_PASSWORD", "password")):
            assert keys[variable] == {"secretKeyRef": {"name": "schema-registry", "key": key}}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert volumes["schema-registry"]["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]


@needs_helm
def test_a_schema_registry_without_login_needs_only_its_authority() -> None:
    things = render([CHURN], {"schemaRegistry.secretKeys.username": ""}, release="churn")
    assert settings_of(things)["schema_registry"]["extra"] == {"ssl.ca.location": "/run/secrets/schema-registry/ca.crt"}
    assert "SCHEMA_REGISTRY" not in json.dumps(things)


FILE_SETTINGS = sorted(
    f"{section}.{name}"
    for section, names in (
        ("input", ["schema_file"]),
        ("model", ["ca_file", "policy"]),
        ("model.server_tls", ["ca_file", "certificate_file", "key_file"]),
        ("kafka.security", ["password_file", "ca_file", "certificate_file", "key_file", "key_password_file"]),
        ("rollout", ["key_file", "password_file"]),
    )
    for name in names
)
FOLDER_SETTINGS = {"model.cache", "model.server_folder"}


def path_settings(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the names of the settings that are paths."""
    for name, field in model.model_fields.items():
        annotation: Any = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from path_settings(annotation, f"{prefix}{name}.")
        elif Path in (annotation, *get_args(annotation)):
            yield f"{prefix}{name}"


def test_the_settings_of_files_are_all_settings_of_paths_but_those_of_folders() -> None:
    assert sorted(set(path_settings(Settings)) - FOLDER_SETTINGS) == FILE_SETTINGS


@needs_helm
@pytest.mark.parametrize("name", FILE_SETTINGS)
def test_a_file_that_a_setting_names_must_be_in_files_or_mounted(name: str) -> None:
    setting = {f"config.{name}": "own.pem"}
    with pytest.raises(RenderingError, match=rf"config\.{name} is own\.pem, but files has no own\.pem"):
        render([CPU], setting)
    render([CPU], {**setting, "files": {"own.pem": "x"}})
    render([CPU], {f"config.{name}": "/run/own/own.pem"})
    mount = {"name": "own", "mountPath": "/etc/scorestream/own.pem", "subPath": "own.pem"}
    render([CPU], {**setting, "scorer.extraVolumeMounts": [mount]})


@needs_helm
def test_an_upgrade_can_be_limited_to_one_scorer() -> None:
    sets = of_kind(render([CPU], {"scorer.updateStrategy.partition": 3, "shadow.enabled": True}), "StatefulSet")
    assert sets["flight-delay-scorer"]["spec"]["updateStrategy"]["rollingUpdate"] == {"partition": 3}
    assert "updateStrategy" not in sets["flight-delay-shadow"]["spec"]


@needs_helm
def test_each_identity_of_the_toolbox_has_its_own_credentials_and_no_pod_by_default() -> None:
    things = rendered("rollouts")
    for identity in ("auditor", "replayer", "promoter"):
        deployment = of_kind(things, "Deployment")[f"flight-delay-toolbox-{identity}"]
        assert deployment["spec"]["replicas"] == 0
        secrets = {volume["secret"]["secretName"] for volume in pod_of(deployment)["volumes"] if "secret" in volume}
        moves = {"registry-writer", "moves-signing"} if identity == "promoter" else {"registry"}
        assert secrets == {f"flight-delay-{identity}-kafka"} | moves
        assert configuration(things, deployment) == configuration(things, of_kind(things, "StatefulSet")["flight-delay-scorer"])


@needs_helm
def test_alerts_name_objects_that_exist() -> None:
    for name in ("cpu", "eu-west"):
        things = rendered(name)
        text = json.dumps(of_kind(things, "PrometheusRule")).replace('\\"', '"')
        assert set(re.findall(r'\bstatefulset="([^"]*)"', text)) <= set(of_kind(things, "StatefulSet"))
        pods = re.findall(r'\bpod=~"([^"]*)-\[0-9\]\+"', text)
        assert set(pods) <= set(of_kind(things, "StatefulSet"))


@needs_helm
def test_alerts_have_the_labels_and_runbooks_of_the_company() -> None:
    (rule,) = of_kind(
        render(
            [CPU], {"monitoring.rules.labels": {"team": "flights"}, "monitoring.rules.runbookUrl": "https://wiki/runbooks/"}
        ),
        "PrometheusRule",
    ).values()
    alerts = [rule for group in rule["spec"]["groups"] for rule in group["rules"] if "alert" in rule]
    assert {alert["labels"]["team"] for alert in alerts} == {"flights"}
    assert all(alert["annotations"]["runbook_url"] == f"https://wiki/runbooks/{alert['alert']}.md" for alert in alerts)


@needs_helm
def test_a_shadow_has_its_own_service_and_only_the_alerts_about_shadows() -> None:
    things = rendered("rollouts")
    labels = of_kind(things, "StatefulSet")["flight-delay-shadow"]["spec"]["template"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/instance"] == "flight-delay-shadow"
    (rule,) = of_kind(things, "PrometheusRule").values()
    alerts = [
        rule.get("alert")
        for group in rule["spec"]["groups"]
        if group["name"].startswith("scoring/flight-delay-shadow/")
        for rule in group["rules"]
    ]
    assert alerts == ["ScorerShadowSkips"]


def test_a_second_service_needs_at_most_thirty_lines() -> None:
    for example in (CPU, SECOND, CHURN):
        assert len(example.read_text().splitlines()) <= 30
