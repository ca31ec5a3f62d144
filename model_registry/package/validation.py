"""Documents that people write (signature.json, policy.yaml), checked key by key.

An error names the place, the value, and what may stand there instead.
"""

import difflib
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

Text = Annotated[str, Field(min_length=1)]

_TYPES = {
    "bool_type": "is neither true nor false",
    "list_type": "is no list with at least one entry",
    "too_short": "is no list with at least one entry",
    "string_type": "is no text of at least one character",
    "string_too_short": "is no text of at least one character",
}


class DocumentPart(BaseModel):
    """An object in a document, called `kind` in its errors. Every key is known, no value is converted."""

    model_config = ConfigDict(strict=True, frozen=True)
    kind: ClassVar[str] = "object"

    @model_validator(mode="before")
    @classmethod
    def _keys(cls, raw: Any) -> Any:
        valid = [field.alias or name for name, field in cls.model_fields.items()]
        if not isinstance(raw, dict):
            raise ValueError(f"{raw!r:.100} is no {cls.kind} with the keys {', '.join(valid)}")  # noqa: TRY004
        for key in raw:
            if key not in valid:
                raise ValueError(f"unknown key {key!r:.100}; {suggestion(str(key), valid)}")
        for key, field in cls.model_fields.items():
            if field.is_required() and key not in raw:
                raise ValueError(f"the key {key!r} is missing")
        return raw


def format_error(error: ValidationError, document: str) -> str:
    """The first fault in one line. `document` stands for the place where the fault is in the whole of it."""
    found = error.errors(include_url=False)[0]
    place = ""
    for part in found["loc"]:
        if isinstance(part, int):
            place += f"[{part}]"
        elif part.isidentifier():
            place += f".{part}" if place else part
    value, kind = found["input"], found["type"]
    if kind == "value_error":
        said = str(found["ctx"]["error"])
    elif kind == "literal_error":
        said = f"{value!r:.100} is neither {found['ctx']['expected'].replace(chr(39), '').replace(' or ', ' nor ')}"
    else:
        said = f"{value!r:.100} {_TYPES.get(kind, found['msg'])}"
    return f"{place or document}: {said}"


def check_unique(names: Iterable[str], what: str) -> None:
    """Raises ValueError, naming `what`, where a name stands there twice."""
    if found := next((name for name, count in Counter(names).items() if count > 1), None):
        raise ValueError(f"{what} {found!r} stands there twice")


def check_whole_number(low: int, high: int, value: object) -> object:
    """The value, if it is a whole number from `low` to `high`, or null. Raises ValueError."""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high):
        raise ValueError(f"{value!r:.100} is no whole number from {low} to {high}")
    return value


def suggestion(word: str, valid: Iterable[str]) -> str:
    """The nearest valid word, and all where none is near."""
    near = difflib.get_close_matches(word, list(valid), n=1)
    return f"did you mean {near[0]!r}?" if near else f"it must be one of {', '.join(valid)}"
