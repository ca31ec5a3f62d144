"""A field of the event that stands in its score (`output.carry`): how a configuration names it, and which values it has."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, ValidationInfo

from model_registry.package import json_path

TYPES = ("string", "long", "double", "boolean")
"""What a carried value may be in Avro's language. `long` has 64 bits."""
LONGEST = 1_024  # bytes of a string in UTF-8
LONGEST_NAME = 200  # characters
MOST = 32
MIN_LONG, MAX_LONG = -(1 << 63), (1 << 63) - 1
MAX_WHOLE = (1 << 64) - 1  # that JSON libraries read as a whole number
SOURCES = ("json", "avro", "protobuf")
"""Formats of events that fields are carried from."""
KEYS = ("path", "as", "type")
WRITTEN = "write its path, or {path: after.id, as: customer, type: string}"
SCHEMA_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")

Scalar = str | int | float | bool | None
Row = Sequence[Scalar]
"""The carried values of one event, one for each field of `output.carry`."""


@dataclass(frozen=True, slots=True)
class CarriedField:
    """`path` is where the value stands in an event, `name` what it is called in the record. `type` is one of TYPES, or None for
    any of them."""

    path: tuple[json_path.Step, ...]
    name: str
    type: str | None = None

    @classmethod
    def read(cls, raw: Any) -> "CarriedField":
        """A path, or a map of `path`, `as` and `type`. Raises ValueError, which says what may stand there."""
        if isinstance(raw, cls):
            return raw
        told = {"path": raw} if isinstance(raw, str) else raw
        if not isinstance(told, dict) or not isinstance(told.get("path"), str):
            raise ValueError(f"this is no carried field; {WRITTEN}")  # noqa: TRY004 - told by pydantic
        if unknown := [str(key) for key in told if key not in KEYS]:
            raise ValueError(f"{unknown[0]!r} is no key of a carried field; {WRITTEN}")
        path, type_ = json_path.of_object(told["path"]), told.get("type")
        if type_ is not None and type_ not in TYPES:
            raise ValueError(f"type {type_!r} is none of {', '.join(TYPES)}")
        name = told.get("as")
        if name is None:
            name = path[0] if len(path) == 1 else json_path.written(path)
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not (name + json_path.written(path)).isprintable():
            raise ValueError(f"{name!r:.100} is no name; give one of 1 to {LONGEST_NAME} printable characters with `as`")
        return cls(path, name, type_)

    def written(self) -> dict[str, str | None]:
        """What `read` reads as this field."""
        return {"path": json_path.written(self.path), "as": self.name, "type": self.type}

    @property
    def words(self) -> str:
        """The path, and what has to stand there."""
        return f"{json_path.written(self.path)!r} ({self.type or 'string, number or boolean'})"

    def fitted(self, value: Any) -> Scalar:
        """The value as it is carried; None for what is no scalar of the type, or too long."""
        if isinstance(value, bool):
            return value if self.type in (None, "boolean") else None
        if isinstance(value, str):
            return value if self.type in (None, "string") and _is_short(value) else None
        if isinstance(value, int | float):
            return self._number(value)
        return None

    def _number(self, value: int | float) -> Scalar:
        if not (math.isfinite(value) if isinstance(value, float) else MIN_LONG <= value <= MAX_WHOLE):
            return None
        if self.type == "double":
            return float(value)
        if self.type == "long":
            return int(value) if int(value) == value and MIN_LONG <= int(value) <= MAX_LONG else None
        return value if self.type is None else None


def _is_short(text: str) -> bool:
    try:
        return len(text) <= LONGEST and len(text.encode()) <= LONGEST
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def check_record(fields: Sequence[CarriedField], format_: str) -> None:
    """Raises ValueError where the fields cannot stand in one record of this format."""
    seen: dict[str, CarriedField] = {}
    for one in fields:
        where = f"{json_path.written(one.path)!r}"
        key = one.name if format_ == "json" else one.name.replace("_", "").lower()
        if key in seen:
            alike = "" if one.name == seen[key].name else " but for case and underscores"
            raise ValueError(f"{where} has the name of {json_path.written(seen[key].path)!r}{alike}; say another with `as`")
        seen[key] = one
        if format_ == "json":
            continue
        if one.type is None:
            raise ValueError(f"{where} has no type, which {format_} needs; say one of {', '.join(TYPES)} with `type`")
        if not SCHEMA_NAME.fullmatch(one.name):
            hint = "say one of letters, digits and _ with `as`"
            raise ValueError(f"{where}: {one.name!r:.100} is no name of a field in {format_}; {hint}")


def check_source(fields: Sequence[CarriedField], format_: str) -> None:
    """Raises ValueError where events of this format have no fields to carry."""
    if fields and format_ not in SOURCES:
        known = f"{', '.join(SOURCES[:-1])} and {SOURCES[-1]}"
        raise ValueError(f"output.carry takes fields from {known} events, and input.format is {format_}; leave carry out")


def _checked(fields: list[CarriedField], info: ValidationInfo) -> list[CarriedField]:
    check_record(fields, info.data.get("format", "json"))
    return fields


One = Annotated[CarriedField, BeforeValidator(CarriedField.read), PlainSerializer(CarriedField.written)]
CarriedFields = Annotated[list[One], Field(max_length=MOST), AfterValidator(_checked)]
"""The setting. It stands behind `format`, the format of the record."""
