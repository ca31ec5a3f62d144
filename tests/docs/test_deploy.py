"""The folders, commands, options, Secrets and users that the pages on deployment and the runbooks name exist."""

import re
import shlex

import pytest
import typer

from model_registry.cli import app as model_registry
from publisher.cli import app as publisher
from scorer.cli import app as scorer
from tests.packaging.deploy.manifests import OVERLAYS, REGIONS, TRAINING, of_kind, pod_of, rendered, workloads
from tests.packaging.deploy.test_training import pod as training_pod
from tests.support.environment import ROOT

TEXT = "".join((ROOT / "deploy" / page).read_text() for page in ("README.md", "operate.md", "training/kubernetes.md"))
BLOCKS = re.findall(r"^ *```sh\n(.*?)```", TEXT, re.DOTALL | re.MULTILINE)
PAGES = "".join(path.read_text() for path in sorted((ROOT / "deploy" / "runbooks").glob("*.md")))
TYPED = re.findall(r"^ *```sh\n(.*?)```", PAGES, re.DOTALL | re.MULTILINE)
LINES = [line.strip() for block in BLOCKS for line in block.replace("\\\n", " ").splitlines() if line.strip()]
APPS = {"scorer": scorer, "model-registry": model_registry, "publisher": publisher}
COMMANDS = {name: typer.main.get_command(app) for name, app in APPS.items()}
RUNBOOKS = {line.strip() for block in TYPED for line in block.replace("\\\n", " ").splitlines() if line.strip()}
OURS = [
    line.partition(" -- ")[2] or line
    for line in [*LINES, *sorted(RUNBOOKS)]
    if re.search(r"(^|-- )(scorer|model-registry|publisher) ", line)
]


@pytest.mark.parametrize("line", OURS)
def test_our_commands_take_these_options(line: str) -> None:
    name, verb, *arguments = shlex.split(line, comments=True)
    group = COMMANDS[name]
    command = group.commands[verb]  # type: ignore[attr-defined]
    if (inner := getattr(command, "commands", None)) is not None:
        command, *arguments = inner[arguments[0]], *arguments[1:]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {argument for argument in arguments if argument.startswith("--")} <= known
    assert OURS


def test_folders_exist() -> None:
    folders = set(re.findall(r"deploy/kubernetes/[\w/-]+", TEXT))
    folders |= {f"deploy/kubernetes/{kind}/{region}" for kind in ("kafka", "overlays") for region in REGIONS}
    assert {folder for folder in folders if not (ROOT / folder).is_dir()} == set()
    named = set(re.findall(r"`((?:kubernetes|overlays|components)/[\w./-]+)`", TEXT))
    assert named
    for name in named:
        assert (ROOT / "deploy" / name).exists() or (ROOT / "deploy" / "kubernetes" / name).exists(), name


def test_every_secret_that_pods_mount_is_made() -> None:
    pods = [pod_of(workload) for name in OVERLAYS for workload in workloads(rendered(name)).values()]
    pods += [training_pod(name) for name in TRAINING]
    mounted = {volume["secret"]["secretName"] for pod in pods for volume in pod["volumes"] if "secret" in volume} | {
        target["name"]
        for name in ("overlays/cpu", "overlays/training-on-labels")
        for thing in of_kind(rendered(name), "TriggerAuthentication").values()
        for target in thing["spec"]["secretTargetRef"]
    }
    general = {"kafka-<region>" if name.removeprefix("kafka-") in REGIONS else name for name in mounted}
    assert {name for name in general if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", TEXT)} == set()


def test_every_user_of_a_certificate_exists() -> None:
    users = of_kind(rendered("kafka/eu-west"), "KafkaUser") | of_kind(rendered("kafka/training"), "KafkaUser")
    asked = set(re.findall(r"^certificates (\S+)", "\n".join(LINES), re.MULTILINE)) | set(re.findall(r"user `([\w-]+)`", TEXT))
    assert asked
    assert asked <= set(users)
