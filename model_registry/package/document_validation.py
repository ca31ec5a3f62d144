"""Validates documents that people write (signature.json, policy.yaml), with pydantic.

An error message names the position, the value, and the allowed values.
"""

import difflib
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

Text = Annotated[str, Field(min_length=1)]

_TYPES = {
    "bool_type": "is neither true nor false",
    "list_type": "is not a list with at least one entry",
    "too_short": "is not a list with at least one entry",
    "string_type": "is not a text of at least one character",
    "string_too_short": "is not a text of at least one character",
}


class DocumentPart(BaseModel):
    """Base class of the objects in a document. Unknown keys are errors; values are not converted to other types.

    `kind` is the word for the object in error messages, such as "an object" or "a mapping".
    """

    model_config = ConfigDict(strict=True, frozen=True)
    kind: ClassVar[str] = "an object"

    @model_validator(mode="before")
    @classmethod
    def _keys(cls, raw: Any) -> Any:
        valid = [field.alias or name for name, field in cls.model_fields.items()]
        if not isinstance(raw, dict):
            raise ValueError(f"{raw!r:.100} is not {cls.kind} with the keys {', '.join(valid)}")  # noqa: TRY004
        for key in raw:
            if key not in valid:
                raise ValueError(f"unknown key {key!r:.100}; {suggestion(str(key), valid)}")
        for key, field in cls.model_fields.items():
            if field.is_required() and key not in raw:
                raise ValueError(f"the key {key!r} is missing")
        return raw


def format_error(error: ValidationError, document: str) -> str:
    """Return the first error as one line "POSITION: ERROR".

    `document` is the text that replaces the position if the error concerns the whole document.
    """
    first = error.errors(include_url=False)[0]
    place = ""
    for part in first["loc"]:
        if isinstance(part, int):
            place += f"[{part}]"
        elif part.isidentifier():
            place += f".{part}" if place else part
    value = first["input"]
    kind = first["type"]
    if kind == "value_error":
        message = str(first["ctx"]["error"])
    elif kind == "literal_error":
        message = f"{value!r:.100} is neither {first['ctx']['expected'].replace(chr(39), '').replace(' or ', ' nor ')}"
    else:
        message = f"{value!r:.100} {_TYPES.get(kind, first['msg'])}"
    return f"{place or document}: {message}"


def check_unique(names: Iterable[str], description: str) -> None:
    """Raise ValueError if a name is repeated; the message starts with `description`, such as "field"."""
    if repeated := next((name for name, count in Counter(names).items() if count > 1), None):
        raise ValueError(f"{description} {repeated!r} is repeated")


def check_whole_number(low: int, high: int, value: object) -> object:
    """Return the value unchanged if it is None or a whole number from `low` to `high`. Raises ValueError otherwise."""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high):
        raise ValueError(f"{value!r:.100} is not a whole number from {low} to {high}")
    return value


def suggestion(word: str, valid: Iterable[str]) -> str:
    """Return "did you mean ...?" with the most similar valid word, or all valid words if no valid word is similar."""
    near = difflib.get_close_matches(word, list(valid), n=1)
    return f"did you mean {near[0]!r}?" if near else f"it must be one of {', '.join(valid)}"
