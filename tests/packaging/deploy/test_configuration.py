"""The manifests agree with the product: settings, topics, rights, ports, paths, times and regions."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from publisher.relay import settings as relay_settings
from publisher.relay.checkpoints import TOPIC_CONFIG
from scorer import settings, topics
from scorer.topics import DEFAULT_MAX_BYTES, DescribedTopic
from tests.integration.security import rights
from tests.packaging.deploy import chart
from tests.packaging.deploy.chart import needs_helm
from tests.packaging.deploy.manifests import (
    EXAMPLES,
    REGIONS,
    Object,
    configuration,
    of_kind,
    pod_of,
    release_of,
    rendered,
    workloads,
)

KINDS = {rights.TOPIC: "topic", rights.GROUP: "group", rights.TRANSACTIONAL_ID: "transactionalId"}
SECURITY = {"protocol", "ca_file", "certificate_file", "key_file"}
"""The keys of a section `security` for client certificates."""
LOGIN = {"protocol", "mechanism", "password_file"}
"""The keys of a section `security` for SCRAM; the user name is an environment variable."""
WITH_PASSWORDS = {"sasl": LOGIN, "churn": LOGIN | {"ca_file"}}
"""The examples whose clients log in to Kafka with passwords, and the keys of their sections `security`."""
USER_FILES = {"ca.crt", "user.crt", "user.key"}
"""The files in a Secret that Strimzi creates for a user."""
KEDA = {
    "bootstrapServers",
    "consumerGroup",
    "topic",
    "lagThreshold",
    "offsetResetPolicy",
    "allowIdleConsumers",
    "excludePersistentLag",
    "limitToPartitionsWithLag",
    "tls",
}
"""The metadata of KEDA's Kafka trigger that is used; KEDA ignores names that it does not know (pkg/scalers/kafka_scaler.go)."""


def scorer_of(name: str) -> Object:
    return of_kind(rendered(name), "StatefulSet")[f"{release_of(name)}-scorer"]


def written(name: str) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load(configuration(rendered(name), scorer_of(name)))
    return values


def loaded(name: str, folder: Path) -> settings.Settings:
    """Load the configuration as the product does, without certificates and passwords, which are in Secrets of the cluster."""
    values = written(name)
    del values["kafka"]["security"]
    values["model"].pop("ca_file", None)
    values.get("schema_registry", {}).pop("extra", None)
    path = folder / "scorer.yaml"
    path.write_text(yaml.safe_dump(values))
    return settings.load(path).settings


def relays(name: str, folder: Path) -> dict[str, relay_settings.RelaySettings]:
    """Load the relays' configurations without their certificates, by the source's region."""
    by_region = {}
    for title, workload in of_kind(rendered(name), "StatefulSet").items():
        if "-relay-" in title:
            path = folder / f"{title}.yaml"
            values = yaml.safe_load(configuration(rendered(name), workload))
            assert [set(values[side].pop("security")) for side in ("source", "destination")] == 2 * [SECURITY]
            path.write_text(yaml.safe_dump(values))
            relay = relay_settings.load(path).settings
            by_region[relay.source.region] = relay
    return by_region


def paths(values: Any) -> set[str]:
    if isinstance(values, dict):
        return set().union(*map(paths, values.values())) if values else set()
    return {values} if isinstance(values, str) and values.startswith("/") else set()


@needs_helm
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_product_accepts_the_configuration_and_has_the_time_to_end(name: str, tmp_path: Path) -> None:
    loaded_settings = loaded(name, tmp_path)
    container = pod_of(scorer_of(name))["containers"][0]
    assert loaded_settings.http.listen == f"0.0.0.0:{container['ports'][0]['containerPort']}"
    assert loaded_settings.model.device == ("cuda" if "gpu" in name else "cpu")
    assert f"-{'gpu' if 'gpu' in name else 'cpu'}" in container["image"]
    assert container["command"][-2:] == ["--workers", "1"]  # scaling and scraping count pods, and each has one port
    assert set(written(name)["kafka"]["security"]) == WITH_PASSWORDS.get(name, SECURITY)
    ends_itself_after = 2 * loaded_settings.kafka.transaction_timeout_ms / 1_000  # the watchdog
    assert pod_of(scorer_of(name))["terminationGracePeriodSeconds"] > ends_itself_after
    for relay in relays(name, tmp_path).values():
        pod = pod_of(of_kind(rendered(name), "StatefulSet")[f"flight-delay-relay-{relay.source.region}"])
        assert pod["terminationGracePeriodSeconds"] > relay.destination.transaction_timeout_ms / 1_000
        assert relay.http.listen == f"0.0.0.0:{pod['containers'][0]['ports'][0]['containerPort']}"


@needs_helm
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_file_that_is_named_is_mounted(name: str) -> None:
    things = rendered(name)
    for workload in of_kind(things, "StatefulSet").values():
        pod = pod_of(workload)
        mounts = {mount["mountPath"]: mount for mount in pod["containers"][0]["volumeMounts"]}
        named = paths(yaml.safe_load(configuration(things, workload)))
        assert "/var/cache/scorestream" in named or "-relay-" in workload["metadata"]["name"]
        files = named - {"/var/cache/scorestream"}
        folders = {str(Path(path).parent) for path in files}
        assert folders
        assert folders <= set(mounts)
        assert all(mounts[folder]["readOnly"] for folder in folders)
        assert {Path(path).name for path in files} == ({"ca.crt", "password"} if name in WITH_PASSWORDS else USER_FILES)
        assert "/etc/scorestream" in mounts
        assert pod["containers"][0]["command"][2].startswith("/etc/scorestream/")


@needs_helm
@pytest.mark.parametrize("name", EXAMPLES)
def test_scaling_follows_lag_as_transactions_need_it(name: str, tmp_path: Path) -> None:
    loaded_settings = loaded(name, tmp_path)
    (scaled,) = of_kind(rendered(name), "ScaledObject").values()
    triggers = [trigger["metadata"] for trigger in scaled["spec"]["triggers"]]
    assert [trigger["topic"] for trigger in triggers] == loaded_settings.input.topics
    assert scaled["spec"]["minReplicaCount"] >= 1  # the markers' lag of 1 per partition would start scorers again at once
    for trigger in triggers:
        assert set(trigger) == KEDA | ({"sasl"} if name in WITH_PASSWORDS else set())
        assert trigger["consumerGroup"] == loaded_settings.name
        assert trigger["bootstrapServers"] == loaded_settings.kafka.bootstrap_servers
        assert trigger["offsetResetPolicy"] == loaded_settings.input.start
        assert int(trigger["lagThreshold"]) > 100 * scaled["spec"]["maxReplicaCount"]
        parse = TypeAdapter(bool).validate_python
        assert not any(
            parse(trigger[key]) for key in ("allowIdleConsumers", "excludePersistentLag", "limitToPartitionsWithLag")
        )
    assert "replicas" not in scorer_of(name)["spec"]


@needs_helm
def test_the_largest_number_of_scorers_is_that_of_the_partitions() -> None:
    (scaled,) = of_kind(rendered("cpu"), "ScaledObject").values()
    topic = scaled["spec"]["triggers"][0]["metadata"]["topic"]
    partitions = of_kind(rendered("kafka/cluster"), "KafkaTopic")[topic]["spec"]["partitions"]
    assert scaled["spec"]["maxReplicaCount"] == partitions


@needs_helm
def test_the_topics_are_those_that_the_scorer_requires(tmp_path: Path) -> None:
    loaded_settings = loaded("cpu", tmp_path)
    specs = {name: thing["spec"] for name, thing in of_kind(rendered("kafka/training"), "KafkaTopic").items()}
    del specs["flights.outcomes"]  # the labels, which this example does not read
    assert set(specs) == set(topics.all_topics(loaded_settings))
    described = {
        name: DescribedTopic(name, spec["partitions"], spec["config"].get("max.message.bytes", DEFAULT_MAX_BYTES))
        for name, spec in specs.items()
    }
    assert topics.faults(loaded_settings, described) == []
    configs = {plan.topic: plan.config or {} for plan in topics.missing(loaded_settings, {}, 12)}
    for name, config in configs.items():
        assert {key: str(specs[name]["config"].get(key)) for key in config} == config, name
    assert described[loaded_settings.output.topic].partitions == described[loaded_settings.input.topics[0]].partitions


@needs_helm
def test_rights_are_on_configured_names_and_no_user_may_change_or_delete_topics(tmp_path: Path) -> None:
    loaded_settings = loaded("cpu", tmp_path)
    users = of_kind(rendered("kafka/eu-west"), "KafkaUser")
    names = {*of_kind(rendered("kafka/eu-west"), "KafkaTopic"), loaded_settings.name}
    for name, user in users.items():
        for rule in user["spec"]["authorization"]["acls"]:
            assert not {"All", "Create", "Delete", "Alter", "AlterConfigs", "ClusterAction"} & set(rule["operations"]), name
            resource = rule["resource"]
            if resource["type"] == "topic":
                start = resource.get("patternType") == "prefix"
                assert any(topic.startswith(resource["name"]) if start else topic == resource["name"] for topic in names)
    rights = {(r["resource"]["type"], r["resource"]["name"]) for r in users["scorer"]["spec"]["authorization"]["acls"]}
    required = set(topics.required(loaded_settings))
    assert rights == {("topic", topic) for topic in required} | {
        ("group", loaded_settings.name),
        ("transactionalId", f"{loaded_settings.name}/scorer/"),
    }


WORK = {
    "scorer": ("scorer",),
    "producer": ("producer",),
    "auditor": ("auditor", "consumer"),
    "promoter": ("watcher",),
    "replayer": ("replay",),
    "rescorer": ("rescore",),
    "shadow": ("shadow",),
}
"""The components of `integration/security/rights.py` that use each user."""


@needs_helm
@pytest.mark.parametrize("user", WORK)
def test_every_user_has_the_rights_that_its_components_need(user: str, tmp_path: Path) -> None:
    loaded_settings = loaded("cpu", tmp_path)
    named = {
        "events": loaded_settings.input.topics[0],
        "scores": loaded_settings.output.topic,
        "dead": loaded_settings.dead_letter.topic,
    }
    named |= {"dead.replayed": loaded_settings.replayed_topic, "scores.corrections": loaded_settings.corrections_topic}
    named |= {"scores.shadow": loaded_settings.shadow_topic}
    rules = of_kind(rendered("kafka/cluster"), "KafkaUser")[user]["spec"]["authorization"]["acls"]

    def granted(kind: str, name: str, operation: str) -> bool:
        for rule in rules:
            resource, covers = rule["resource"], str.startswith if "patternType" in rule["resource"] else str.__eq__
            if resource["type"] == kind and operation in rule["operations"] and covers(name, resource["name"]):
                return True
        return False

    for component in WORK[user]:
        for kind, name, operation in rights.COMPONENTS[component](loaded_settings.name).values():
            resource_name = named.get(name.removeprefix(f"{loaded_settings.name}."), name).removesuffix("*")
            assert granted(KINDS[kind], resource_name, operation.name.title()), (component, resource_name, operation)


@needs_helm
def test_each_region_has_its_own_channel_and_a_relay_from_each_other_region(tmp_path: Path) -> None:
    for here in REGIONS:
        name = here
        loaded_settings = loaded(name, tmp_path)
        assert [loaded_settings.region, loaded_settings.model.tag] == [here, f"prod.{here}"]
        assert set(relays(name, tmp_path)) == set(REGIONS) - {here}
        copies = of_kind(rendered(f"kafka/{here}"), "KafkaTopic")
        for far, relay in relays(name, tmp_path).items():
            assert relay.destination.region == here
            assert relay.destination.bootstrap_servers == loaded_settings.kafka.bootstrap_servers
            assert relay.source.topics == [loaded_settings.output.topic]
            original = of_kind(rendered(f"kafka/{far}"), "KafkaTopic")[loaded_settings.output.topic]
            assert copies[relay.destination_topic(loaded_settings.output.topic)]["spec"] == original["spec"]
            checkpoints = copies[relay.checkpoint_topic]["spec"]["config"]
            assert {key: str(checkpoints[key]) for key in TOPIC_CONFIG} == TOPIC_CONFIG
            assert all(
                name.startswith("scores-") for name in relay.transactional_ids(0)
            )  # the prefix that the user `relay` may use
    names = [relay.name for here in REGIONS for relay in relays(here, tmp_path).values()]
    assert len(set(names)) == len(REGIONS) * (len(REGIONS) - 1)


@needs_helm
def test_each_relay_has_the_certificates_of_its_own_source() -> None:
    for here in REGIONS:
        for title, workload in of_kind(rendered(here), "StatefulSet").items():
            if "-relay-" not in title:
                continue
            far = title.removeprefix("flight-delay-relay-")
            secrets = {v["name"]: v["secret"]["secretName"] for v in pod_of(workload)["volumes"] if "secret" in v}
            assert secrets == {"source": f"flight-delay-relay-{far}-kafka", "destination": "flight-delay-relay-kafka"}
            assert workload["spec"]["replicas"] == 1


@needs_helm
def test_each_client_that_logs_in_gets_its_name_and_password_from_one_secret() -> None:
    for title, workload in workloads(rendered("sasl")).items():
        pod = pod_of(workload)
        (name,) = [variable for variable in pod["containers"][0]["env"] if variable["name"].endswith("__USERNAME")]
        (secret,) = [volume["secret"]["secretName"] for volume in pod["volumes"] if volume["name"] == "kafka"]
        assert name["valueFrom"]["secretKeyRef"] == {"name": secret, "key": "username"}, title


@needs_helm
def test_the_product_accepts_the_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = written("sasl")
    values["model"].pop("ca_file")
    (tmp_path / "password").write_text("secret")
    values["kafka"]["security"]["password_file"] = str(tmp_path / "password")
    path = tmp_path / "scorer.yaml"
    path.write_text(yaml.safe_dump(values))
    monkeypatch.setenv("SCORER_KAFKA__SECURITY__USERNAME", "scorer")
    security = settings.load(path).settings.kafka.security
    assert [security.protocol, security.mechanism, security.username] == ["SASL_SSL", "SCRAM-SHA-512", "scorer"]


@needs_helm
def test_the_product_inserts_the_login_of_the_schema_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = written("churn")
    del values["kafka"]["security"], values["model"]["ca_file"]
    path = tmp_path / "scorer.yaml"
    path.write_text(yaml.safe_dump(values))
    monkeypatch.setenv("SCHEMA_REGISTRY_USERNAME", "churn")
    monkeypatch.setenv("SCHEMA_REGISTRY_PASSWORD", 'a: "#${b}')
    extra = settings.load(path).settings.schema_registry.extra
    assert extra == {"ssl.ca.location": "/run/secrets/schema-registry/ca.crt", "basic.auth.user.info": 'churn:a: "#${b}'}


@needs_helm
@pytest.mark.parametrize("timeout_ms", [5_000, 60_000])
def test_a_scorer_has_the_time_to_end_itself(timeout_ms: int) -> None:
    things = chart.render([chart.EXAMPLES / "cpu.yaml"], {"config.kafka.transaction_timeout_ms": timeout_ms})
    pod = pod_of(of_kind(things, "StatefulSet")["flight-delay-scorer"])
    assert pod["terminationGracePeriodSeconds"] > 2 * timeout_ms / 1_000


@needs_helm
@pytest.mark.parametrize("name", ["flight-delay-rollout-controller", "flight-delay-toolbox-auditor"])
def test_pods_without_a_gpu_run_models_on_the_cpu(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [chart.EXAMPLES / f"{part}.yaml" for part in ("cpu", "gpu", "rollouts")]
    things = chart.render(files, {"config.model.devices": [0]})
    container = pod_of(of_kind(things, "Deployment")[name])["containers"][0]
    assert "nvidia.com/gpu" not in container["resources"]["limits"]
    values = yaml.safe_load(configuration(things, of_kind(things, "StatefulSet")["flight-delay-scorer"]))
    assert values["model"]["device"] == "cuda"
    del values["kafka"]["security"]
    path = tmp_path / "scorer.yaml"
    path.write_text(yaml.safe_dump(values))
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], variable["value"])
    model = settings.load(path).settings.model
    assert [model.device, model.devices] == ["cpu", "all"]
