"""Which column of a file feeds which field of a signature. Pure.

A row of a file has no key and no headers, and no table is read for it. A field that a scorer reads from a key, a header or a
table is therefore read from the column with the name of the field.
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
        signature: the signature with which rows are decoded. A row is a JSON object with a member for each column.
        fields: for each column that is read, the field that it feeds. The entry is None for the column of the event's id, and
            for a column whose values are objects or arrays from which fields are read.
        defaults: the names of the optional fields without a column. Every row has the default of such a field.
    """

    signature: Signature
    fields: Mapping[str, InputField | None]
    defaults: Sequence[str]


def fit_columns(signature: Signature, columns: Sequence[str], id_field: str | None, file: str) -> FittedColumns:
    """Find the column of each field of a signature.

    A field with the path `age` has the column `age`. A field with the path `customer.age` has the column `customer`, whose
    values are objects; without a column `customer`, it has the column `customer.age`.

    Args:
        signature: the signature of the version.
        columns: the names of the columns of the file.
        id_field: the path of the event field with the id; None if events have no id.
        file: the name of the file for messages.

    Raises:
        Fatal: With exit code 2 if there is no column for a required field or for one of the `outside_fields`.
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

    Lines have the format `input.format` if it is a JSON format; otherwise they are JSON objects. If the signature has fields
    from outside the event, lines are always objects, because these fields are read by name.
    """
    is_json = INPUT_FORMATS[settings.input.format].is_json
    return _without_carry(settings) if is_json and not outside_fields(signature) else for_objects(settings)


def outside_fields(signature: Signature) -> list[InputField]:
    """Return the fields that a scorer does not read from the event but, for example, from a key, a header or a table."""
    return [field for field in signature.fields if field.source]


def _without_carry(settings: Settings) -> Settings:
    return settings.model_copy(update={"output": settings.output.model_copy(update={"carry": []})})
