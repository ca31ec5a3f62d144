"""Arrow types of JSON values. This module imports pyarrow on first use, because only Parquet files and notebooks need it."""

from collections.abc import Sequence
from typing import Any

from model_registry.extras import install_command
from publisher.errors import USAGE, Fatal


class MixedTypes(ValueError):
    """Values of one column have no common Arrow type."""


def load_pyarrow() -> Any:
    """Return the module pyarrow. Raises Fatal if it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise Fatal(f"Parquet files need pyarrow: {error}", install_command("parquet"), USAGE) from error
    return pyarrow


def infer_type(values: Sequence[Any]) -> Any:
    """Return the Arrow type of JSON values; the type null if all values are null.

    A number is a float64, an array is a list, and an object is a struct.

    Raises:
        MixedTypes: the values have no common type, or a float64 cannot represent an integer.
    """
    pa = load_pyarrow()
    try:
        type_ = pa.array(values).type
        column_type = _with_doubles(type_)
        if column_type != type_:
            pa.array(values, column_type)
        return column_type
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise MixedTypes(str(error)) from None


def fits(type_: Any, column_type: Any) -> bool:
    """Return whether values of the type `type_` fit into a column of the type `column_type` without loss."""
    pa = load_pyarrow()
    if pa.types.is_null(type_) or type_ == column_type:
        return True
    if pa.types.is_list(type_) and pa.types.is_list(column_type):
        return fits(type_.value_type, column_type.value_type)
    if pa.types.is_struct(type_) and pa.types.is_struct(column_type):
        indices = [column_type.get_field_index(field.name) for field in type_]
        return all(
            index >= 0 and fits(field.type, column_type.field(index).type) for field, index in zip(type_, indices, strict=True)
        )
    return False


def known_type(type_: Any) -> Any:
    """Return the type with each null type replaced by float64. A null type means that all values were null."""
    return _map_leaves(type_, lambda leaf, pa: pa.float64() if pa.types.is_null(leaf) else leaf)


def _with_doubles(type_: Any) -> Any:
    return _map_leaves(type_, lambda leaf, pa: pa.float64() if pa.types.is_integer(leaf) else leaf)


def _map_leaves(type_: Any, change: Any) -> Any:
    pa = load_pyarrow()
    if pa.types.is_list(type_):
        return pa.list_(_map_leaves(type_.value_type, change))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _map_leaves(field.type, change)) for field in type_])
    return change(type_, pa)
