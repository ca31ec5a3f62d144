"""Which column of a file feeds which field of a signature. Pure.

A row of a file has neither key nor headers, and no table is read for it. A field from another part of a record, or from a
table, is therefore read from the column of its own name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from model_registry import suggestions
from model_registry.package import field_sources, json_path
from model_registry.package.signature import InputField, Signature
from publisher.errors import USAGE, Fatal
from scorer.settings import Settings
from scorer.settings.input_formats import INPUT_FORMATS


@dataclass(frozen=True, slots=True)
class FittedColumns:
    """The columns of a file that feed the fields of a signature.

    Attributes:
        signature: the signature whose fields are read from JSON objects of the columns.
        fields: for each column that is read, the field that it feeds; None for the id of the event, and for a column of
            objects or arrays that contain fields.
        defaults: the names of the optional fields without a column, which have their defaults.
    """

    signature: Signature
    fields: Mapping[str, InputField | None]
    defaults: Sequence[str]


def fit_columns(signature: Signature, columns: Sequence[str], id_field: str | None, file: str) -> FittedColumns:
    """Find the column of each field of a signature.

    The column of a field has the name of the first step of the field's path. If the path has more steps, the values of this
    column are objects. If there is no such column, the column has the name of the whole path, such as `customer.age`.

    Args:
        signature: the signature of the version.
        columns: the names of the columns of the file.
        id_field: the path of the event field with the id; None if events have no id.
        file: the name of the file for messages.

    Raises:
        Fatal: With code 2 if a required field, or any field from outside the event, has no column.
    """
    fields: dict[str, InputField | None] = {}
    renamed: dict[str, InputField] = {}
    defaults: list[str] = []
    missing: list[str] = []
    sources = {field.name: field for field in signature.fields}
    by_name = field_sources.read_by_name(signature)
    for field in by_name.fields:
        top = str(field.steps[0])
        path = json_path.format_path(field.steps)
        if top in columns:
            fields[top] = field if len(field.steps) == 1 else None
        elif path in columns:
            fields[path] = renamed[field.name] = replace(field, path=(path,))
        elif field.required or sources[field.name].source:
            missing.append(field_sources.qualified_name(sources[field.name]))
        else:
            defaults.append(field.name)
    if missing:
        near = next(filter(None, (suggestions.question(name.split("'")[1], columns) for name in missing)), "")
        raise Fatal(
            f"{file} has no column for {', '.join(missing)}",
            "; ".join(filter(None, (near, f"its columns: {', '.join(columns)}"))),
            USAGE,
        )
    if id_field is not None and (id_column := str(json_path.parse_object_path(id_field)[0])) in columns:
        fields.setdefault(id_column, None)
    inputs = tuple(
        replace(tensor, fields=tuple(renamed.get(field.name, field) for field in tensor.fields)) for tensor in by_name.inputs
    )
    return FittedColumns(replace(by_name, inputs=inputs), fields, defaults)


def for_objects(settings: Settings) -> Settings:
    """Return settings with which events are decoded as JSON objects, independent of the format of the input topics."""
    update = {"format": "json", "schema_file": None, "message": None}
    return _without_carry(settings.model_copy(update={"input": settings.input.model_copy(update=update)}))


def for_lines(settings: Settings, signature: Signature) -> Settings:
    """Return settings with which JSON lines are decoded.

    If the format of the input topics is JSON, lines have this format. Otherwise, lines are JSON objects. If the signature has
    fields from outside the event, lines are always objects, because an array has no names for these fields.
    """
    is_json = INPUT_FORMATS[settings.input.format].is_json
    return _without_carry(settings) if is_json and not outside_fields(signature) else for_objects(settings)


def outside_fields(signature: Signature) -> list[InputField]:
    """Return the fields from outside the event: a scorer reads them from a key, a header or a table, for example."""
    return [field for field in signature.fields if field.source]


def _without_carry(settings: Settings) -> Settings:
    return settings.model_copy(update={"output": settings.output.model_copy(update={"carry": []})})
