"""Topics and users that the chart creates for Strimzi are those of the example of a cluster, with names of the release."""

import re
from typing import Any

from scorer import settings, topics
from scorer.topics import DEFAULT_MAX_BYTES, DescribedTopic
from tests.integration.security import rights
from tests.packaging.deploy.chart import EXAMPLES, needs_helm, render
from tests.packaging.deploy.manifests import Object, of_kind, rendered, validate
from tests.packaging.deploy.test_chart import settings_of
from tests.packaging.deploy.test_configuration import KINDS
from tests.support.environment import ROOT

pytestmark = needs_helm
PAGE = ROOT / "deploy" / "kafka.md"
VALUES = {"strimzi.enabled": True, "strimzi.cluster": "events", "strimzi.namespace": "kafka"}
OF_THE_PRODUCERS = {"flights", "flights.outcomes"}
"""Topics that the chart does not create: inputs and labels."""
OTHERS = {"producer", "consumer"}
"""Users of the example that are not components of a release."""


def with_everything() -> list[Object]:
    """Render a release with all components that have a user."""
    files = [EXAMPLES / f"{name}.yaml" for name in ("cpu", "rollouts", "training", "training-on-labels")]
    return render(files, {**VALUES, "toolbox.identities": ["auditor", "replayer", "promoter", "rescorer"]})


def rights_of(user: Object) -> set[tuple[str, str, bool, str]]:
    """Return the rights of a user: type and name of the resource, whether the name is a prefix, and the operation."""
    return {
        (rule["resource"]["type"], rule["resource"]["name"], "patternType" in rule["resource"], operation)
        for rule in user["spec"]["authorization"]["acls"]
        for operation in rule["operations"]
    }


def users_of(things: list[Object]) -> dict[str, Object]:
    """Return the users of a release by the name of their component."""
    return {name.rpartition(".")[2]: user for name, user in of_kind(things, "KafkaUser").items()}


def test_topics_are_those_of_the_example_of_a_cluster() -> None:
    created = {thing["spec"].pop("topicName"): thing["spec"] for thing in of_kind(with_everything(), "KafkaTopic").values()}
    example = {name: thing["spec"] for name, thing in of_kind(rendered("kafka/training"), "KafkaTopic").items()}
    assert created == {name: spec for name, spec in example.items() if name not in OF_THE_PRODUCERS}


def test_users_have_the_rights_of_the_example_of_a_cluster() -> None:
    created = users_of(with_everything())
    example = of_kind(rendered("kafka/training"), "KafkaUser")
    assert set(created) == set(example) - OTHERS
    for name in set(created) - {"auditor"}:
        assert rights_of(created[name]) == rights_of(example[name]), name


def test_the_auditor_reads_the_topics_of_its_release_and_nothing_else() -> None:
    auditor = rights_of(users_of(with_everything())["auditor"])
    assert {operation for *_, operation in auditor} == {"Read", "Describe"}
    assert not any(is_prefix for _, _, is_prefix, _ in auditor)
    named = {"events": "flights", "scores": "flights.scores", "dead": "flights.dead"}
    for component in ("auditor", "consumer", "judge"):
        for kind, name, operation in rights.COMPONENTS[component]("flight-delay").values():
            part = name.removeprefix("flight-delay.")
            topic = named.get(part) or {"scores.shadow": "flights.scores.shadow"}.get(part, name)
            assert (KINDS[kind], topic, False, operation.name.title()) in auditor, (component, name)


def test_every_object_is_valid_and_in_the_namespace_of_strimzi() -> None:
    things = [thing for thing in with_everything() if thing["kind"].startswith("Kafka")]
    for thing in things:
        validate(thing)
        assert thing["metadata"]["namespace"] == "kafka"
        assert thing["metadata"]["labels"]["strimzi.io/cluster"] == "events"


def test_topics_stay_when_the_release_is_removed() -> None:
    for thing in of_kind(with_everything(), "KafkaTopic").values():
        assert thing["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_the_scorer_accepts_the_topics_of_derived_names() -> None:
    things = render([EXAMPLES / "second.yaml"], {**VALUES, "strimzi.inputs": True}, release="card-fraud")
    scorer_values: dict[str, Any] = settings_of(things)
    del scorer_values["kafka"]["security"]
    loaded = settings.load(scorer_values).settings
    created = {thing["spec"]["topicName"]: thing["spec"] for thing in of_kind(things, "KafkaTopic").values()}
    assert set(created) == set(topics.all_topics(loaded))
    described = {
        name: DescribedTopic(name, spec["partitions"], spec["config"].get("max.message.bytes", DEFAULT_MAX_BYTES))
        for name, spec in created.items()
    }
    assert topics.faults(loaded, described) == []
    assert all(name.startswith("scoring.card-fraud.") for name in set(created) - {"payments"})


def test_rights_follow_the_tables_of_the_configuration() -> None:
    tables = {"weather": {"topic": "airport.weather"}, "airlines": {"topic": "airlines.rows", "scope": "all"}}
    values = {**VALUES, "config.tables": tables, "shadow.enabled": True, "toolbox.enabled": True}
    users = users_of(render([EXAMPLES / "cpu.yaml"], values))
    readers = {
        user: {
            (name, operation) for kind, name, _, operation in rights_of(thing) if name in ("airport.weather", "airlines.rows")
        }
        for user, thing in users.items()
    }
    described = {(name, op) for name in ("airport.weather", "airlines.rows") for op in ("Read", "DescribeConfigs")}
    assert readers.pop("scorer") == described
    assert readers.pop("shadow") == described
    assert readers.pop("auditor") == {("airport.weather", "Read"), ("airlines.rows", "Read")}
    assert not any(readers.values())


def test_created_topics_of_tables_are_compacted_and_accepted_by_the_scorer() -> None:
    values = {**VALUES, "strimzi.inputs": True, "config.tables": {"weather": {"topic": "airport.weather"}}}
    things = render([EXAMPLES / "second.yaml"], values, release="card-fraud")
    scorer_values: dict[str, Any] = settings_of(things)
    del scorer_values["kafka"]["security"]
    loaded = settings.load(scorer_values).settings
    created = {thing["spec"]["topicName"]: thing["spec"] for thing in of_kind(things, "KafkaTopic").values()}
    assert created["airport.weather"]["config"]["cleanup.policy"] == "compact"
    assert created["airport.weather"]["partitions"] == created["payments"]["partitions"]
    assert set(created) == set(topics.all_topics(loaded))


def test_users_of_two_namespaces_differ() -> None:
    first, second = (
        set(of_kind(render([EXAMPLES / "cpu.yaml"], VALUES, namespace=namespace), "KafkaUser"))
        for namespace in ("scoring", "staging")
    )
    assert first & second == set()


def test_users_log_in_as_the_clients_do() -> None:
    things = render([EXAMPLES / "cpu.yaml"], {**VALUES, "kafka.authentication": "scram-sha-512"})
    assert {user["spec"]["authentication"]["type"] for user in users_of(things).values()} == {"scram-sha-512"}


def name_on_page(name: str) -> str:
    """Return the name of a resource of `with_everything` as `deploy/kafka.md` writes it."""
    for prefix, placeholder in (("flights.scores", "N.scores"), ("flights.dead", "N.dead"), ("flight-delay", "N")):
        if re.match(rf"{re.escape(prefix)}(?=$|[./])", name):
            return f"`{placeholder}{name.removeprefix(prefix)}`"
    return {"flights": "inputs", "flights.outcomes": "labels"}[name]


def test_the_page_lists_the_users_and_rights_of_a_release() -> None:
    section = PAGE.read_text().partition("## Users")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w-]+)` \| (.*) \|$", section, re.MULTILINE)
    rendered_rows = {}
    for user, thing in users_of(with_everything()).items():
        cells: dict[str, dict[str, list[str]]] = {"topic": {}, "group": {}, "transactionalId": {}}
        for rule in thing["spec"]["authorization"]["acls"]:
            resource = rule["resource"]
            name = f"prefix {name_on_page(resource['name'])}" if "patternType" in resource else name_on_page(resource["name"])
            cells[resource["type"]].setdefault(", ".join(rule["operations"]), []).append(name)
        rendered_rows[user] = [
            "; ".join(f"{operations}: {', '.join(names)}" for operations, names in cell.items()) for cell in cells.values()
        ]
    assert {user: [cell.strip() for cell in row.split("|")] for user, row in rows} == rendered_rows


def test_the_page_lists_the_topics_of_a_release() -> None:
    section = PAGE.read_text().partition("## Topics")[2].partition("\n## ")[0]
    rows = {
        name: (partitions, set(re.findall(r"`(?!max\.)([\w.]+=[\w-]+)`", settings)))
        for name, partitions, settings in re.findall(r"^\| (`N[\w.]+`) \| ([^|]+) \| ([^|]*)\|", section, re.MULTILINE)
    }
    ordinary = {"min.insync.replicas", "max.message.bytes"}
    of_events = {"retention.ms=604800000", "message.timestamp.type=CreateTime"}
    topics_of_chart = {}
    for thing in of_kind(with_everything(), "KafkaTopic").values():
        spec = thing["spec"]
        settings = {f"{key}={value}" for key, value in spec["config"].items() if key not in ordinary}
        partitions = "1" if spec["partitions"] == 1 else "as the input"
        topics_of_chart[name_on_page(spec["topicName"])] = (partitions, settings - of_events)
    assert rows == topics_of_chart
