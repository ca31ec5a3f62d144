"""The folders, commands, options, Secrets and users that the pages on deployment and the runbooks name exist."""

import re
import shlex
import textwrap
from pathlib import Path

import pytest
import typer
import yaml

from model_registry.cli import app as model_registry
from publisher.cli import app as publisher
from scorer.cli import app as scorer
from tests.packaging.deploy.chart import EXAMPLES as FOLDER
from tests.packaging.deploy.chart import needs_helm, render
from tests.packaging.deploy.manifests import (
    EXAMPLES,
    REGIONS,
    RELEASES,
    TRAINING,
    of_kind,
    pod_of,
    rendered,
    title,
    validate,
    workloads,
)
from tests.packaging.deploy.test_training import pod as training_pod
from tests.support.environment import ROOT

PARTS = (
    "README.md",
    "secrets.md",
    "kafka.md",
    "regions.md",
    "gitops.md",
    "operate.md",
    "upgrades.md",
    "training/kubernetes.md",
)
TEXT = "".join((ROOT / "deploy" / page).read_text() for page in PARTS)
BLOCKS = re.findall(r"^ *```sh\n(.*?)```", TEXT, re.DOTALL | re.MULTILINE)
PAGES = "".join(path.read_text() for path in sorted((ROOT / "deploy" / "runbooks").glob("*.md")))
TYPED = re.findall(r"^ *```sh\n(.*?)```", PAGES, re.DOTALL | re.MULTILINE)
LINES = [line.strip() for block in BLOCKS for line in block.replace("\\\n", " ").splitlines() if line.strip()]
APPS = {"scorer": scorer, "model-registry": model_registry, "publisher": publisher}
COMMANDS = {name: typer.main.get_command(app) for name, app in APPS.items()}
RUNBOOKS = {line.strip() for block in TYPED for line in block.replace("\\\n", " ").splitlines() if line.strip()}
OURS = [
    line.partition(" -- ")[2] or line.removeprefix("promoter ")
    for line in [*LINES, *sorted(RUNBOOKS)]
    if re.search(r"(^|-- |^promoter )(scorer|model-registry|publisher) ", line)
]


@pytest.mark.parametrize("line", OURS)
def test_our_commands_take_these_options(line: str) -> None:
    name, verb, *arguments = shlex.split(line, comments=True)
    group = COMMANDS[name]
    command = group.commands[verb]  # type: ignore[attr-defined]
    if (inner := getattr(command, "commands", None)) is not None:
        command, *arguments = inner[arguments[0]], *arguments[1:]
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {argument for argument in arguments if argument.startswith("--")} <= options
    assert OURS


def test_files_and_folders_exist() -> None:
    paths = set(re.findall(r"deploy/(?:kubernetes|chart)/[\w/.-]+(?<!\.)", TEXT))
    paths |= {f"deploy/kubernetes/kafka/{region}" for region in REGIONS} | {
        f"deploy/chart/examples/{region}.yaml" for region in REGIONS
    }
    assert {path for path in paths if not (ROOT / path).exists()} == set()
    named = set(re.findall(r"`((?:kubernetes|chart)/[\w./-]+)`", TEXT))
    assert named
    assert {name for name in named if not (ROOT / "deploy" / name).exists()} == set()


@pytest.mark.parametrize("name", ["cpu.yaml", "second.yaml"])
def test_the_values_on_the_page_are_those_of_the_example(name: str) -> None:
    block = re.search(rf"^ *<!-- values: {re.escape(name)} -->\n *```yaml\n(.*?)^ *```$", TEXT, re.DOTALL | re.MULTILINE)
    assert block
    assert textwrap.dedent(block[1]) == (FOLDER / name).read_text()


def values_on_pages() -> list[tuple[str, str]]:
    """Return the page and text of each YAML block in deploy/ that has values of the chart: `config` or `relays`."""
    value_names = set(yaml.safe_load((ROOT / "deploy" / "chart" / "values.yaml").read_text()))
    listed = []
    for page in sorted((ROOT / "deploy").rglob("*.md")):
        for block in re.findall(r"^ *```yaml\n(.*?)^ *```$", page.read_text(), re.DOTALL | re.MULTILINE):
            text = textwrap.dedent(block)
            values = yaml.safe_load(text)
            if isinstance(values, dict) and {"config", "relays"} & set(values) and set(values) <= value_names:
                listed.append((str(page.relative_to(ROOT)), text))
    return listed


@needs_helm
@pytest.mark.parametrize("text", [text for _, text in values_on_pages()], ids=[page for page, _ in values_on_pages()])
def test_values_on_the_pages_render(text: str, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(text)
    for thing in render([FOLDER / "cpu.yaml", tmp_path / "values.yaml"]):
        validate(thing)


@needs_helm
def test_the_application_of_argo_cd_renders(tmp_path: Path) -> None:
    block = re.search(r"^<!-- values: application -->\n```yaml\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    assert block
    source = yaml.safe_load(block[1])["spec"]["source"]
    chart = yaml.safe_load((ROOT / "deploy" / "chart" / "Chart.yaml").read_text())
    assert [source["chart"], source["targetRevision"]] == [chart["name"], chart["version"]]
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(source["helm"]["valuesObject"]))
    things = render([tmp_path / "values.yaml"], release=source["helm"]["releaseName"])
    for thing in things:
        validate(thing)
    assert "replicas" not in of_kind(things, "StatefulSet")["flight-delay-scorer"]["spec"]


@needs_helm
def test_pods_and_objects_that_kubectl_lines_name_exist() -> None:
    typed = "\n".join(line for line in LINES if "kubectl" in line)
    named = set(re.findall(r"(?: |=)(deploy|deployment|statefulset|cronjob)/([\w-]+)(?=[ \n])", typed))
    kinds = {"deploy": "Deployment", "deployment": "Deployment", "statefulset": "StatefulSet", "cronjob": "CronJob"}
    things = {title(thing) for name in EXAMPLES | TRAINING for thing in rendered(name)}
    assert {f"{kinds[kind]}/{name}" for kind, name in named} <= things
    pods = set(re.findall(r"exec ([\w-]+)-0 --", typed))
    assert pods
    assert {f"StatefulSet/{pod}" for pod in pods} <= things


@needs_helm
def test_ports_that_runbooks_read_are_those_of_the_pods() -> None:
    pods = {name: pod_of(thing) for example in EXAMPLES for name, thing in of_kind(rendered(example), "StatefulSet").items()}
    read = set(re.findall(r"/pods/([\w-]+)-0:(\d+)/proxy/", PAGES))
    assert len(read) > 1
    for name, port in read:
        (container,) = pods[name]["containers"]
        assert int(port) in [each["containerPort"] for each in container["ports"]], name


@needs_helm
def test_every_secret_that_pods_mount_is_created() -> None:
    pods = [pod_of(workload) for name in EXAMPLES if name not in RELEASES for workload in workloads(rendered(name)).values()]
    pods += [training_pod(name) for name in TRAINING]
    mounted = {volume["secret"]["secretName"] for pod in pods for volume in pod["volumes"] if "secret" in volume} | {
        target["name"]
        for name in ("cpu", "training-on-labels")
        for thing in of_kind(rendered(name), "TriggerAuthentication").values()
        for target in thing["spec"]["secretTargetRef"]
    }
    regions = "|".join(REGIONS)
    general = {re.sub(rf"-relay-(?:{regions})-kafka$", "-relay-<region>-kafka", name) for name in mounted}
    assert {name for name in general if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", TEXT)} == set()


@needs_helm
def test_every_user_of_a_certificate_exists() -> None:
    users = of_kind(rendered("kafka/eu-west"), "KafkaUser") | of_kind(rendered("kafka/training"), "KafkaUser")
    named = set(re.findall(r"^certificates ([\w-]+) ", "\n".join(LINES), re.MULTILINE)) | set(
        re.findall(r"user `([\w-]+)`", TEXT)
    )
    assert named
    assert named <= set(users)


@needs_helm
def test_the_certificates_of_the_second_service_are_those_of_its_users_and_pods() -> None:
    loop = re.search(
        r"^for user in ([\w ]+); do\n *certificates \"([\w.-]+)\$user\" \"card-fraud-\$user-kafka\"", TEXT, re.MULTILINE
    )
    assert loop
    things = rendered("second")
    assert {f"{loop[2]}{user}" for user in loop[1].split()} == set(of_kind(things, "KafkaUser"))
    mounted = {
        volume["secret"]["secretName"]
        for workload in workloads(things).values()
        for volume in pod_of(workload)["volumes"]
        if volume["name"] == "kafka"
    }
    assert mounted | {"card-fraud-autoscaler-kafka"} == {f"card-fraud-{user}-kafka" for user in loop[1].split()}


def test_the_page_on_secrets_lists_the_secret_of_each_component() -> None:
    values = yaml.safe_load((ROOT / "deploy" / "chart" / "values.yaml").read_text())
    page = (ROOT / "deploy" / "secrets.md").read_text()
    rows = re.findall(r"^\| (.*?) \| of Kafka", page, re.MULTILINE)
    listed = {secret for row in rows for secret in re.findall(r"`flight-delay-([a-z-]+)-kafka`", row)}
    assert listed == {re.sub(r"(?=[A-Z])", "-", component).lower() for component in values["kafka"]["secrets"]}
