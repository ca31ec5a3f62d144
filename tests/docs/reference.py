"""The reference tables of the pages, made from the code: settings, commands, metrics, alerts, the score record, and
the counts of audits, and the roles of Kafka users."""

import ast
import dataclasses
import inspect
import json
import logging
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
import yaml
from annotated_types import Ge, Gt, Le
from prometheus_client import CollectorRegistry
from pydantic import BaseModel, ByteSize
from pydantic.fields import FieldInfo
from typer.testing import CliRunner

from model_registry.cli import app as model_registry
from publisher.audit.event_audit import EventReport
from publisher.audit.region_audit import RegionsReport
from publisher.audit.relay_audit import CopyReport
from publisher.audit.report import FAULTS, Report
from publisher.cli import app as publisher
from publisher.errors import Fatal
from publisher.kafka import client_properties, roles
from publisher.runtime.dependency_wait import Outages
from publisher.runtime.logs import JsonLines, log_fatal
from scorer.cli import app as scorer
from scorer.settings import Settings, registry_properties
from tests.packaging.deploy.alert_rules import alert_rules
from tests.packaging.deploy.exporters import exporters
from tests.support.environment import ROOT
from tests.support.every_setting import named_section

LOGGED_AT = 1_764_936_000.0  # the time of the first example of a log line, in Unix seconds
FOREIGN = ("builtins", "pydantic")
WORDS = {
    "ByteSize": "bytes",
    "Path": "path",
    "SecretStr": "text",
    "bool": "true or false",
    "float": "number",
    "int": "number",
    "str": "text",
    "Any": "any",
    "CarriedField": "path or map",
}
RECORD_WORDS = {"string": "text", "int": "integer", "long": "integer", "double": "number", "null": "null"}


def settings() -> str:
    """Return a section for each part of the configuration with one row per setting: name, type, default and docstring.

    Raises:
        ValueError: if a setting has no docstring.
    """
    sections = [(prefix, rows) for prefix, rows in _sections(Settings) if rows]
    contents = ", ".join(
        f"[{_section_title(prefix)}](#{_section_title(prefix).replace('.', '').lower()})" for prefix, _ in sections
    )
    parts = [f"Sections: {contents}\n"]
    for prefix, rows in sections:
        parts.append(f"\n## {_section_title(prefix)}\n\n{_table(['setting', 'type', 'default', 'meaning'], rows)}")
    return "".join(parts)


def _section_title(prefix: str) -> str:
    """Return `kafka.security` for the prefix `kafka.security.`, and `scorer` for the settings outside of sections."""
    return prefix.rstrip(".") or "scorer"


def _sections(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, list[list[str]]]]:
    """Yield the prefix and rows of a model's own settings, then those of its sections."""
    words = docstrings(model)
    nested: list[tuple[str, type[BaseModel]]] = []
    rows: list[list[str]] = []
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            nested.append((f"{prefix}{name}.", field.annotation))
            continue
        if name not in words:
            raise ValueError(f"{model.__name__}.{name} has no docstring: write one below it")
        text, _, stated_default = words[name].partition("; default: ")
        default = stated_default.rstrip(".") if stated_default else _default(field)
        stated = field.alias or name
        rows.append([f"`{prefix}{stated}`", _type(field), default, f"{text.rstrip('.')}." if stated_default else text])
        if (section := named_section(field.annotation)) is not None:
            nested.append((f"{prefix}{name}.NAME.", section))
    yield prefix, rows
    for section_prefix, section in nested:
        yield from _sections(section, section_prefix)


def docstrings(model: type) -> dict[str, str]:
    """Return the docstring below each attribute of a class, its own and inherited ones."""
    texts: dict[str, str] = {}
    for base in reversed([base for base in model.__mro__ if base.__module__.partition(".")[0] not in FOREIGN]):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for before, after in zip(tree.body, tree.body[1:], strict=False):
            match before, after:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(value=ast.Constant(value=str(words))):
                    texts[name] = " ".join(words.split())
    return texts


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None or value in ([], {}):
        return "none"
    if isinstance(value, ByteSize):
        return value.human_readable(separator=" ")
    return f"`{json.dumps(value) if not isinstance(value, str) else value}`"


def _type(field: FieldInfo) -> str:
    limits = {type(limit): limit for limit in field.metadata}
    bounds = [
        f"{word} {getattr(limits[kind], name):,.10g}"
        for kind, name, word in ((Ge, "ge", "from"), (Gt, "gt", "over"), (Le, "le", "to"))
        if kind in limits
    ]
    return " ".join([_name(field.annotation), *bounds])


def _name(kind: Any) -> str:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _name(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_name(argument) for argument in arguments if argument is not NoneType))
    if origin is list:
        return f"list of {_name(arguments[0])}"
    if origin is dict:
        return "map"
    return WORDS[kind.__name__]


def commands(app: typer.Typer) -> str:
    """Return one row per command of a program with its summary. Its `--help` explains its options."""
    group: Any = typer.main.get_command(app)
    rows = []
    for name, command in sorted(flat(group.commands)):
        summary = str(command.help or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        rows.append([f"`{name}`", summary])
    return _table(["command", ""], rows)


def flat(named: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Yield commands by name. The name of a command in a group begins with the name of the group."""
    for name, command in named.items():
        inner = getattr(command, "commands", None)
        yield from flat(inner, f"{prefix}{name} ") if inner else ((prefix + name, command),)


def metrics(registry: CollectorRegistry) -> str:
    """Return one row per metric: its exported name, kind, labels and help."""
    suffix = {"counter": "_total", "info": "_info"}
    rows = []
    for family in registry.collect():
        if not family.name.endswith("_created"):
            labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
            name = family.name + suffix.get(family.type, "")
            rows.append([f"`{name}`", family.type, " ".join(f"`{label}`" for label in labels), family.documentation])
    return _table(["metric", "kind", "labels", ""], sorted(rows))


def alerts() -> str:
    """Return one row per alert, with a link to its runbook."""
    rows = []
    for rule in alert_rules():
        name, summary = rule["alert"], rule["annotations"]["summary"]
        rows.append([f"[{name}](runbooks/{name}.md)", rule["labels"]["severity"], re.sub(r"\{\{.*?\}\}", "…", summary)])
    return _table(["alert", "severity", ""], rows)


def score_record() -> str:
    """Return one row per field of the score record, from its Avro schema."""
    printed = CliRunner().invoke(scorer, ["schema", "--scores", "--format", "avro"])
    rows = [[f"`{field['name']}`", _record_type(field["type"])] for field in json.loads(printed.stdout)["fields"]]
    return _table(["field", "type"], rows)


class _FormattedLines(logging.Handler):
    """A log handler that collects records as JSON lines, each one second after the line before."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.owner: dict[str, str] = {"scorer": "flights.scorer-0"}
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        record.created = LOGGED_AT + len(self.lines)
        self.lines.append(JsonLines(self.owner).format(record))


def log_lines() -> str:
    """Return one example line for each kind of log line, made by the formatter that processes use."""
    formatted = _FormattedLines()
    root = logging.getLogger()
    level = root.level
    root.addHandler(formatted)
    root.setLevel(logging.INFO)
    try:
        headings = [heading for heading, log_example in _log_examples(formatted.owner) if log_example() is None]
    finally:
        root.removeHandler(formatted)
        root.setLevel(level)
    examples = zip(headings, formatted.lines, strict=True)
    return "".join(f"{heading}:\n\n```json\n{line}\n```\n\n" for heading, line in examples).rstrip("\n") + "\n"


def _log_examples(owner: dict[str, str]) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield a heading for each kind of line, and the function that logs an example."""
    outages = Outages()
    yield "An ordinary line", lambda: logging.getLogger("scorer.consumer.consumer").info("assigned: flights[0-5]")
    unavailable = Fatal("no Kafka broker answers at kafka:9092", "check kafka.bootstrap_servers")
    yield "The begin of an outage", lambda: outages.begin("brokers", unavailable)
    yield "The end of an outage", lambda: outages.end("brokers")
    yield "A fatal error", lambda: log_fatal("topic flights does not exist", "scorer check CONFIG --create creates it", 2)
    failure = ValueError("no row has this key")
    worker = logging.getLogger("scorer.service.supervisor")
    yield "An unexpected error", lambda: worker.error("unexpected error; the worker ends", exc_info=failure)
    owner["process"] = "trial"
    native = logging.getLogger("scorer.native.librdkafka")
    message = "the native library is not used to fetch events and produce records: it was not built"
    yield "A line of a child process", lambda: native.warning(message)


def audit_counts(report: type[Report]) -> str:
    """Return one row per field of an audit's report except `clean`. Raises ValueError for a field without a docstring."""
    words = docstrings(report)
    names = [field.name for field in dataclasses.fields(report)]
    if bare := [name for name in names if name not in words]:
        raise ValueError(f"{report.__name__}.{bare[0]} has no docstring: write one below it")
    return _table(["field", "", ""], [[f"`{name}`", "fault" if name in FAULTS else "", words[name]] for name in names])


def client_properties_rejected() -> str:
    """Return one row for each reason to reject properties of the Kafka client in `extra`, with these properties."""
    properties: dict[str, list[str]] = {}
    for key, reason in sorted(client_properties.REJECTED.items()):
        properties.setdefault(reason, []).append(f"`{key}`")
    return _table(["properties", "reason"], [[", ".join(keys), reason] for reason, keys in properties.items()])


def client_properties_allowed() -> str:
    """Return the properties of the Kafka client that `extra` may state, and which of them are secrets."""
    allowed = ", ".join(f"`{key}`" for key in sorted(client_properties.ALLOWED))
    secret = ", ".join(f"`{key}`" for key in sorted(client_properties.SECRET))
    return f"Printed: {allowed}.\n\nNever printed: {secret}.\n"


def registry_properties_allowed() -> str:
    """Return the properties that `schema_registry.extra` may state, and which of them are secrets."""
    allowed = ", ".join(f"`{key}`" for key in sorted(registry_properties.ALLOWED))
    secret = ", ".join(f"`{key}`" for key in sorted(registry_properties.SECRET))
    return f"Printed: {allowed}.\n\nNever printed: {secret}.\n"


def roles_and_commands() -> str:
    """Return a table of the roles of Kafka users with the commands of each."""
    rows = ([f"`{role}`", ", ".join(f"`{command}`" for command in commands)] for role, commands in roles.ROLES.items())
    return _table(["role", "commands"], rows)


def _record_type(kind: Any) -> str:
    if isinstance(kind, list):
        return " or ".join(_record_type(part) for part in [*kind[1:], kind[0]])
    if isinstance(kind, str):
        return RECORD_WORDS[kind]
    if kind["type"] == "record":
        return "object of " + ", ".join(f"`{part['name']}` ({_record_type(part['type'])})" for part in kind["fields"])
    if kind["type"] == "map":
        return f"object of {_record_type(kind['values'])}"
    return f"array of {_record_type(kind['items'])}" if kind["type"] == "array" else _record_type(kind["type"])


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cells).replace("|  |", "| |") + " |\n" for cells in lines)


def chart_values() -> str:
    """Return a section for each top-level value of the chart, with one row per value: name, default and description."""
    folder = ROOT / "deploy" / "chart"
    schema = json.loads((folder / "values.schema.json").read_text())
    values = yaml.safe_load((folder / "values.yaml").read_text())
    general, sections = list[list[str]](), list[str]()
    for key, default in values.items():
        described = schema["properties"][key]
        if "properties" not in described:
            general.append([f"`{key}`", f"`{json.dumps(default)}`", described["description"]])
            continue
        rows = list(_value_rows(default, described, f"{key}."))
        sections.append(f"\n## {key}\n\n{described['description']}\n\n{_table(['value', 'default', 'meaning'], rows)}")
    relay = schema["definitions"]["relay"]["properties"]
    rows = [[f"`relays[].{key}`", described["description"]] for key, described in relay.items()]
    sections.append(f"\n## A relay\n\n{_table(['value', 'meaning'], rows)}")
    return _table(["value", "default", "meaning"], general) + "".join(sections)


def _value_rows(values: Mapping[str, Any], schema: Mapping[str, Any], prefix: str) -> Iterator[list[str]]:
    for key, default in values.items():
        described = schema["properties"][key]
        if "properties" in described:
            yield from _value_rows(default, described, f"{prefix}{key}.")
        else:
            shown = "" if default in ("", {}, [], None) else f"`{json.dumps(default)}`"
            yield [f"`{prefix}{key}`", shown, described["description"]]


PARTS: dict[tuple[str, str], Callable[[], str]] = {
    ("scorer/docs/settings.md", "settings"): settings,
    ("scorer/docs/client-properties.md", "client-properties-allowed"): client_properties_allowed,
    ("scorer/docs/client-properties.md", "client-properties-rejected"): client_properties_rejected,
    ("scorer/docs/client-properties.md", "registry-properties"): registry_properties_allowed,
    ("scorer/docs/commands.md", "commands"): lambda: commands(scorer),
    ("scorer/docs/read-scores.md", "score-record"): score_record,
    ("publisher/docs/relay-reference.md", "commands"): lambda: commands(publisher),
    ("deploy/rights.md", "roles"): roles_and_commands,
    ("model_registry/docs/commands.md", "commands"): lambda: commands(model_registry),
    ("publisher/docs/audit.md", "events"): lambda: audit_counts(EventReport),
    ("publisher/docs/audit.md", "regions"): lambda: audit_counts(RegionsReport),
    ("publisher/docs/audit.md", "copies"): lambda: audit_counts(CopyReport),
    ("scorer/docs/logs.md", "log-lines"): log_lines,
    ("deploy/metrics.md", "scorer-metrics"): lambda: metrics(exporters()[0]),
    ("deploy/metrics.md", "relay-metrics"): lambda: metrics(exporters()[1]),
    ("deploy/metrics.md", "controller-metrics"): lambda: metrics(exporters()[2]),
    ("deploy/alerts.md", "alerts"): alerts,
    ("deploy/chart/README.md", "values"): chart_values,
}
"""The generated parts: page and name, and the function that makes each."""
