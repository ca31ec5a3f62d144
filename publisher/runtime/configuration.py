"""Load the settings of a command from a file, the environment and flags, and record where each value came from.

A flag has precedence over the environment, the environment over the file, and the file over the default. A YAML file,
environment variables (`SCORER_KAFKA__BOOTSTRAP_SERVERS`) and `--set kafka.bootstrap_servers=...` name the same keys. `${NAME}`
and `${NAME:-default}` in a file are replaced by environment variables. Unknown keys are errors.
"""

import copy
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as EnvironmentFault

from model_registry import suggestions as nearest_name
from model_registry.redaction import MASK, redacted
from model_registry.untrusted_input import yaml_documents
from model_registry.untrusted_input.json_documents import UnreadableDocument
from publisher.kafka import client_properties, security
from publisher.kafka.clients import is_secret

TOPIC = r"^[a-zA-Z0-9._-]{1,249}$"
TopicName = Annotated[str, Field(pattern=TOPIC)]
Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,100}$")]
"""A name that becomes part of the names of topics, groups and transactional ids. The limit leaves room for the other parts."""
Listen = Annotated[str, Field(pattern=r"^.+:\d{1,5}$")]
"""A host and a port to listen on."""
SCALARS = str | int | float | bool | None


class SettingsError(Exception):
    """The configuration is invalid.

    The message has one line for each fault: the key, the remedy, and the value. A value that may be secret is left out.
    """

    def __init__(self, message: str) -> None:
        super().__init__(redacted(message))


class Section(BaseModel):
    """A section of a configuration. It is immutable, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Configuration(BaseSettings):
    """A complete configuration. A subclass sets `env_prefix`; `load` merges the sources and records each value's origin."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, env_nested_delimiter="__", hide_input_in_errors=True)

    @classmethod
    def settings_customise_sources(cls, *_: Any, **sources: Any) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the values that `load` has merged as the only source, so that the environment is not read again."""
        return (sources["init_settings"],)


S = TypeVar("S", bound=Configuration)


@dataclass(frozen=True)
class Loaded(Generic[S]):
    """Loaded settings. `origins` has, for each dotted key, the source of its value: the file, the environment or `--set`."""

    settings: S
    origins: Mapping[str, str]


def load(
    model: type[S],
    path: Path | Mapping[str, Any],
    flags: Sequence[str] = (),
    resolve: Callable[[dict[str, Any], Path], None] = lambda _values, _base: None,
) -> Loaded[S]:
    """Read and merge a file, the environment and `--set` flags.

    Args:
        model: the class of the settings.
        path: the file, or a mapping with the values of a built-in configuration.
        flags: the values of `--set`, each `key=value`.
        resolve: makes relative paths absolute. It is called with the values of each source and a base folder: the folder of the
            file, or the working directory for the environment and the flags.

    Raises:
        SettingsError: if the configuration is invalid.
    """
    origins: dict[str, str] = {}
    merged: dict[str, Any] = {}
    from_environment = _read_environment(model)
    for values, origin, base in (
        (_read_file(path), str(path), path.parent) if isinstance(path, Path) else (dict(path), "built in", Path.cwd()),
        (from_environment, "environment", Path.cwd()),
        (_read_flags(flags), "--set", Path.cwd()),
    ):
        resolve(values, base)
        _refuse_a_written_password(model, values, origin)
        _merge(merged, values)
        origins |= {key: origin for key, _ in flatten(values)}
    return Loaded(validated(model, merged, origins), origins)


def validated(model: type[S], values: Mapping[str, Any], origins: Mapping[str, str] = MappingProxyType({})) -> S:
    """Build the settings from merged values. Raises SettingsError with one line for each fault."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise SettingsError("\n".join(_explain(model, fault, origins) for fault in error.errors())) from None


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaf values of nested mappings, each with its dotted key."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def shown(key: str, value: Any, properties: Set[str] = client_properties.ALLOWED) -> Any:
    """Return a value for display, with secrets and credentials in URLs masked.

    Args:
        key: The dotted key of the value.
        value: The value.
        properties: The client properties in `extra` whose values may be printed.
    """
    if is_secret(key, properties) and value not in (None, {}):
        return MASK
    if isinstance(value, str):
        return redacted(value)
    return [shown(key, element, properties) for element in value] if isinstance(value, list) else value


def nearest(name: str, valid: Sequence[str]) -> str:
    """Return `the nearest valid name is X`, or the list of all valid names if none is similar."""
    near = nearest_name.name(name, valid, cutoff=0.5)
    return f"the nearest valid name is {near!r}" if near else f"valid names: {', '.join(sorted(valid))}"


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        question = nearest_name.file_question(path)
        raise SettingsError(f"cannot read {path}: there is no such file" + (f"; {question}" if question else "")) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read {path}: {error}") from None
    try:
        values = yaml_documents.load(text)
    except UnreadableDocument as error:
        raise SettingsError(f"{path} is not YAML: {error}") from None
    if not isinstance(values, dict):
        raise SettingsError(f"{path} must hold a mapping of settings, not {type(values).__name__}")
    expanded: dict[str, Any] = _expand(values, path)
    return expanded


def _refuse_a_written_password(model: type[Configuration], values: Mapping[str, Any], origin: str) -> None:
    """Raise SettingsError if a configuration file or a flag contains a Kafka password.

    Passwords come from files of their own or from the environment.
    """
    for name, section in values.items() if origin != "environment" else ():
        proof = section.get("security") if isinstance(section, Mapping) else None
        if isinstance(proof, Mapping) and "password" in proof:
            variable = f"{model.model_config.get('env_prefix', '')}{name.upper()}__SECURITY__PASSWORD"
            way_out = f"name a file with password_file, or set the environment variable {variable}"
            raise SettingsError(f"{name}.security.password ({origin}): passwords are not read from here; {way_out}")


def _expand(value: Any, path: Path) -> Any:
    """Replace `${NAME}` and `${NAME:-default}` in all strings of a value by environment variables.

    Raises:
        SettingsError: if a variable is not set and has no default.
    """
    if isinstance(value, dict):
        return {str(k): _expand(v, path) for k, v in value.items()}
    if isinstance(value, list):
        return [_expand(v, path) for v in value]
    if not isinstance(value, str):
        return value

    def expand_one(match: re.Match[str]) -> str:
        name = match["name"]
        default = match["default"]
        replacement = os.environ.get(name) or (socket.gethostname() if name == "HOSTNAME" else default)
        if replacement is None:
            raise SettingsError(f"{path}: ${{{name}}} is not set; export {name} or write ${{{name}:-default}}")
        return replacement

    return re.sub(r"\$\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}", expand_one, value)


def _read_environment(model: type[Configuration]) -> dict[str, Any]:
    """Return the settings in environment variables. Raises SettingsError, whose message omits the value of the variable."""
    try:
        return EnvSettingsSource(model, case_sensitive=False)()
    except EnvironmentFault as error:
        prefix = model.model_config.get("env_prefix", "")
        named = re.search(r'field "(\w+)"', str(error))
        variable = f"{prefix}{named[1].upper()}" if named else f"a variable {prefix}..."
        raise SettingsError(f"the value of the environment variable {variable} is not a JSON object or array") from None


def _read_flags(flags: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for flag in flags:
        key, equals, text = flag.partition("=")
        if not equals or not key:
            raise SettingsError("--set has no key or no '=': write --set key=value, for instance --set name=other")
        try:
            nested: Any = yaml_documents.load(text) if text else ""
        except UnreadableDocument:
            nested = text
        for part in reversed(key.split(".")):
            nested = {part: nested}
        _merge(values, nested)
    return values


def _merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = copy.deepcopy(value)  # later sources are merged into the copy, not into the caller's mapping


def _explain(model: type[Configuration], fault: Any, origins: Mapping[str, str]) -> str:
    """Return the line of a SettingsError for one of pydantic's errors."""
    path = [str(part) for part in fault["loc"]]
    key = ".".join(path)
    if line := security.error_line(fault, key) or client_properties.error_lines(fault, key):
        return line
    where = origins.get(key, "")
    place = f"{key} ({where})" if where else key
    message = str(fault["msg"]) if path else str(fault["msg"]).removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        return f"{place}: unknown key; {nearest(path[-1], _names_at(model, path[:-1]))}"
    if fault["type"] == "missing":
        variable = f"{model.model_config.get('env_prefix', '')}{'__'.join(path).upper()}"
        return f"{place}: this setting is missing; write it in the file, or give --set {key}=..., or export {variable}"
    value = f"{shown(key, fault['input'])!r}" if _may_be_printed(model, path, fault["input"]) else ""
    if fault["type"] == "literal_error":
        return f"{place}: {value or 'its value'} is not one of {fault['ctx']['expected']}"
    return ": ".join(part for part in (place, value, message) if part)


def _may_be_printed(model: type[Configuration], path: Sequence[str], value: Any) -> bool:
    """Return whether the faulty `value` may be printed."""
    # It may be if it is a scalar and `path` names a single setting. A value in place of a section or of a map of client
    # properties may contain secrets, even if the user has written a text instead of a mapping.
    section: Any = model
    for at, part in enumerate(path):
        field = _settings_of(section).get(part)
        if field is None:
            return False
        section = _required(field.annotation)
        if get_origin(section) is list:
            return len(path) <= at + 2 and isinstance(value, SCALARS)
    is_plain = (
        not (isinstance(section, type) and issubclass(section, BaseModel | SecretStr)) and get_origin(section) is not dict
    )
    return bool(path) and is_plain and isinstance(value, SCALARS)


def _names_at(model: type[Configuration], path: Sequence[str]) -> list[str]:
    section: Any = model
    for part in path:
        section = _required(_settings_of(section)[part].annotation)
    return list(_settings_of(section))


def _required(annotation: Any) -> Any:
    """Return the section of an optional section, such as `Section | None`; any other annotation as it is."""
    parts = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else ()
    return next((part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)), annotation)


def _settings_of(section: Any) -> dict[str, FieldInfo]:
    """Return the settings of a section by their names in the file; empty for a value that is no section."""
    return {field.alias or name: field for name, field in getattr(section, "model_fields", {}).items()}
