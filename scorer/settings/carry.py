"""Event fields that are copied into score records (`output.carry`): their configuration and their permitted values."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, ValidationInfo

from model_registry.package import json_path
from scorer.settings.input_formats import NAMED_FIELD_FORMATS

TYPES = ("string", "long", "double", "boolean")
"""The types of a carried value, by their Avro names. `long` has 64 bits."""
LONGEST = 1_024  # maximum size of a carried string in UTF-8 bytes
LONGEST_NAME = 200  # maximum number of characters of a carried field's name
MAX_FIELDS = 32
MIN_LONG = -(1 << 63)
MAX_LONG = (1 << 63) - 1
MAX_WHOLE = (1 << 64) - 1  # the largest number that JSON libraries read as an integer
KEYS = ("path", "as", "type")
WRITTEN = "write its path, or {path: after.id, as: customer, type: string}"
SCHEMA_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")

Scalar = str | int | float | bool | None
Row = Sequence[Scalar]
"""The carried values of one event, one for each field of `output.carry`."""


@dataclass(frozen=True, slots=True)
class CarriedField:
    """An event field that is copied into the score record of its event.

    Attributes:
        path: the path of the value in the event.
        name: the name of the value in the record.
        type: the required type of the value, one of TYPES; None allows any of them.
    """

    path: tuple[json_path.Step, ...]
    name: str
    type: str | None = None

    @classmethod
    def read(cls, raw: Any) -> "CarriedField":
        """Parse the setting of one field, a path or a map of `path`, `as` and `type`. Raises ValueError if it is invalid."""
        if isinstance(raw, cls):
            return raw
        entry = {"path": raw} if isinstance(raw, str) else raw
        if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
            raise ValueError(f"this is not a carried field; {WRITTEN}")  # noqa: TRY004 - pydantic reports ValueError
        if unknown := [str(key) for key in entry if key not in KEYS]:
            raise ValueError(f"{unknown[0]!r} is not a key of a carried field; {WRITTEN}")
        path = json_path.parse_object_path(entry["path"])
        type_ = entry.get("type")
        if type_ is not None and type_ not in TYPES:
            raise ValueError(f"type {type_!r} is not one of {', '.join(TYPES)}")
        name = entry.get("as")
        if name is None:
            name = path[0] if len(path) == 1 else json_path.format_path(path)
        if (
            not isinstance(name, str)
            or not 0 < len(name) <= LONGEST_NAME
            or not (name + json_path.format_path(path)).isprintable()
        ):
            raise ValueError(f"{name!r:.100} is not a name; give one of 1 to {LONGEST_NAME} printable characters with `as`")
        return cls(path, name, type_)

    def written(self) -> dict[str, str | None]:
        """Return the setting of the field as a map, which `read` parses."""
        return {"path": json_path.format_path(self.path), "as": self.name, "type": self.type}

    @property
    def words(self) -> str:
        """The field's path and expected type as text for messages."""
        return f"{json_path.format_path(self.path)!r} ({self.type or 'string, number or boolean'})"

    def fitted(self, value: Any) -> Scalar:
        """Return the value to copy; None if the value is not a scalar, does not have the field's type, or is too long."""
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
    """Check that the names of carried fields are distinct and valid in score records of this format. Raises ValueError."""
    by_key: dict[str, CarriedField] = {}
    for one in fields:
        where = f"{json_path.format_path(one.path)!r}"
        key = one.name if format_ == "json" else one.name.replace("_", "").lower()
        if key in by_key:
            alike = "" if one.name == by_key[key].name else ", except for case and underscores"
            raise ValueError(
                f"{where} has the same name as {json_path.format_path(by_key[key].path)!r}{alike}; give another name with `as`"
            )
        by_key[key] = one
        if format_ == "json":
            continue
        if one.type is None:
            raise ValueError(f"{where} has no type, which {format_} needs; give one of {', '.join(TYPES)} with `type`")
        if not SCHEMA_NAME.fullmatch(one.name):
            hint = "give one of letters, digits and _ with `as`"
            raise ValueError(f"{where}: {one.name!r:.100} is not a field name in {format_}; {hint}")


def check_source(fields: Sequence[CarriedField], format_: str) -> None:
    """Check that events of this format have named fields if `fields` is not empty. Raises ValueError."""
    if fields and format_ not in NAMED_FIELD_FORMATS:
        formats = f"{', '.join(NAMED_FIELD_FORMATS[:-1])} and {NAMED_FIELD_FORMATS[-1]}"
        raise ValueError(f"output.carry takes fields from {formats} events, and input.format is {format_}; leave carry out")


def _check_format(fields: list[CarriedField], info: ValidationInfo) -> list[CarriedField]:
    check_record(fields, info.data.get("format", "json"))
    return fields


CarriedFieldSetting = Annotated[CarriedField, BeforeValidator(CarriedField.read), PlainSerializer(CarriedField.written)]
CarriedFields = Annotated[list[CarriedFieldSetting], Field(max_length=MAX_FIELDS), AfterValidator(_check_format)]
"""The type of the setting `carry`. Its validation reads the setting `format`, so the class must declare `format` first."""
