"""Reads a configuration: flag > environment > file > default, and where each value came from. For every command's settings.

A YAML file, environment variables (`SCORER_KAFKA__BOOTSTRAP_SERVERS`) and `--set kafka.bootstrap_servers=...` name the same
keys. `${NAME}` and `${NAME:-default}` in a file stand for environment variables. Unknown keys are errors.
"""

import difflib
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from publisher.kafka import security
from publisher.kafka.clients import is_secret
from untrusted_input import yaml_documents
from untrusted_input.documents import Unreadable

TOPIC = r"^[a-zA-Z0-9._-]{1,249}$"
TopicName = Annotated[str, Field(pattern=TOPIC)]
Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,100}$")]
"""Of a region, or of what owns topics, groups and transactions: there is room for what stands beside it in their names."""
Listen = Annotated[str, Field(pattern=r"^.+:\d{1,5}$")]
"""A host and a port to serve at."""


class SettingsError(Exception):
    """The configuration is wrong. The message holds one line a fault: the name, the value and the way out."""


class Section(BaseModel):
    """A part of a configuration: unknown keys are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Configuration(BaseSettings):
    """A whole configuration. A subclass says its `env_prefix`; `load` merges, so that the origin of each value is known."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, env_nested_delimiter="__")

    @classmethod
    def settings_customise_sources(cls, *_: Any, **sources: Any) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what `load` has merged."""
        return (sources["init_settings"],)


S = TypeVar("S", bound=Configuration)


@dataclass(frozen=True)
class Loaded(Generic[S]):
    """Settings, and for each dotted key the place its value came from."""

    settings: S
    origins: Mapping[str, str]


def load(
    model: type[S],
    path: Path | Mapping[str, Any],
    flags: Sequence[str] = (),
    resolve: Callable[[dict[str, Any], Path], None] = lambda _values, _base: None,
) -> Loaded[S]:
    """Read and merge file, environment and `--set` flags. Raises SettingsError. A mapping stands for a file.

    `resolve(values, folder)` makes relative paths absolute: a file's from its folder, others from the working directory.
    """
    origins: dict[str, str] = {}
    merged: dict[str, Any] = {}
    from_environment = EnvSettingsSource(model, case_sensitive=False)()
    for values, origin, base in (
        (_read_file(path), str(path), path.parent) if isinstance(path, Path) else (dict(path), "built in", Path.cwd()),
        (from_environment, "environment", Path.cwd()),
        (_read_flags(flags), "--set", Path.cwd()),
    ):
        resolve(values, base)
        _refuse_a_written_password(model, values, origin)
        _merge(merged, values)
        origins |= {key: origin for key, _ in flatten(values)}
    try:
        return Loaded(model.model_validate(merged), origins)
    except ValidationError as error:
        raise SettingsError("\n".join(_explain(model, fault, origins) for fault in error.errors())) from None


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and leaf values."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def shown(key: str, value: Any) -> Any:
    """A value as it may be printed: never a secret."""
    return "***" if value is not None and (is_secret(key) or key.endswith("user.info")) else value


def nearest(name: str, valid: Sequence[str]) -> str:
    """`the nearest valid name is X`, or the whole list where nothing is near."""
    near = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    return f"the nearest valid name is {near[0]!r}" if near else f"valid names: {', '.join(sorted(valid))}"


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read {path}: {error}") from None
    try:
        values = yaml_documents.load(text)
    except Unreadable as error:
        raise SettingsError(f"{path} is not YAML: {error}") from None
    if not isinstance(values, dict):
        raise SettingsError(f"{path} must hold a mapping of settings, not {type(values).__name__}")
    expanded: dict[str, Any] = _expand(values, path)
    return expanded


def _refuse_a_written_password(model: type[Configuration], values: Mapping[str, Any], origin: str) -> None:
    """Passwords of Kafka come from files of their own or from the environment. Raises SettingsError."""
    for name, section in values.items() if origin != "environment" else ():
        proof = section.get("security") if isinstance(section, Mapping) else None
        if isinstance(proof, Mapping) and "password" in proof:
            variable = f"{model.model_config.get('env_prefix', '')}{name.upper()}__SECURITY__PASSWORD"
            way_out = f"name a file with password_file, or set the environment variable {variable}"
            raise SettingsError(f"{name}.security.password ({origin}): a password does not belong here; {way_out}")


def _expand(value: Any, path: Path) -> Any:
    """`${NAME}` and `${NAME:-default}` inside strings."""
    if isinstance(value, dict):
        return {str(k): _expand(v, path) for k, v in value.items()}
    if isinstance(value, list):
        return [_expand(v, path) for v in value]
    if not isinstance(value, str):
        return value

    def one(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        found = os.environ.get(name) or (socket.gethostname() if name == "HOSTNAME" else default)
        if found is None:
            raise SettingsError(f"{path}: ${{{name}}} is not set; export {name} or write ${{{name}:-default}}")
        return found

    return re.sub(r"\$\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}", one, value)


def _read_flags(flags: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for flag in flags:
        key, equals, text = flag.partition("=")
        if not equals or not key:
            raise SettingsError(f"--set {flag}: write --set key=value, for instance --set name=other")
        try:
            nested: Any = yaml_documents.load(text) if text else ""
        except Unreadable:
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
            into[key] = dict(value) if isinstance(value, Mapping) else value


def _explain(model: type[Configuration], fault: Any, origins: Mapping[str, str]) -> str:
    """One line for one fault that pydantic found."""
    path = [str(part) for part in fault["loc"]]
    key = ".".join(path)
    if line := security.told(fault, key):
        return line
    where = origins.get(key, "")
    value = shown(key, fault.get("input"))
    place = f"{key} ({where})" if where else key
    if fault["type"] == "extra_forbidden":
        return f"{place}: unknown key with value {value!r}; {nearest(path[-1], _names_at(model, path[:-1]))}"
    if fault["type"] == "missing":
        variable = f"{model.model_config.get('env_prefix', '')}{'__'.join(path).upper()}"
        return f"{place}: missing; write it in the file, or --set {key}=..., or export {variable}"
    if fault["type"] == "literal_error":
        return f"{place}: {value!r} is not one of {fault['ctx']['expected']}"
    return f"{place}: {value!r}: {fault['msg']}"


def _names_at(model: type[Configuration], path: Sequence[str]) -> list[str]:
    section: Any = model
    for part in path:
        section = section.model_fields[part].annotation
    return list(section.model_fields)
