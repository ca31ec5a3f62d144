"""Checks input tensors of varying length, and the tensors derived from them: masks and lengths.

The length of a tensor varies from event to event if its shape has -1. A mask marks the padding of a tensor of varying length. A
tensor of lengths holds, for each event, the length of a tensor of varying length.
"""

from collections.abc import Sequence
from typing import Any

from model_registry.package import binary_fields, field_sources, shapes
from model_registry.package.dtypes import INTEGER_LIMITS, value_fault
from model_registry.package.shapes import MAX_WIDTH
from model_registry.package.signature import InputField, Signature, TensorInput

EXAMPLE = '{"name": ..., "array": true, "max_length": 512}'
BYTES = '{"name": ..., "bytes": true, "max_length": 2000000}'


def check_dynamic(tensor: Any) -> bool:
    """Check the keys of a tensor in signature.json that concern varying lengths.

    Returns:
        Whether the tensor is a tensor of varying length, a mask or a tensor of lengths.

    Raises:
        ValueError: One of these keys is wrong, or is not allowed for this kind of tensor.
    """
    if tensor.mask_of or tensor.length_of:
        _check_derived(tensor)
        return True
    if tensor.marks:
        raise ValueError('"marks" is only for a mask: name the masked tensor in "mask_of"')
    if tensor.fields is not None and tensor.value is None and shapes.varies(tensor.shape):
        _check_varying(tensor)
        return True
    if shapes.varies(tensor.shape):
        raise ValueError(f"{tensor.shape}: only a tensor of an array field or of bytes may have a length that varies (-1)")
    if tensor.pad is not None or tensor.axis or any(field.max_length for field in tensor.fields or ()):
        raise ValueError('"pad", "axis" and "max_length" are for a length that varies: write -1 for it in "shape"')
    return False


def _check_varying(tensor: Any) -> None:
    """Raise ValueError unless the tensor of varying length has exactly one field, an array or bytes, with `max_length`."""
    shape = tensor.shape
    fields = tensor.fields
    if len(fields) > 1 or not (fields[0].array or fields[0].bytes):
        raise ValueError(
            f"a tensor of varying length, here of the shape {shape}, must have exactly one field; "
            f"the field must be an array, such as {EXAMPLE}, or bytes, such as {BYTES}"
        )
    field = fields[0]
    if field.bytes and tensor.dtype == "string":
        raise ValueError(
            f"field {field.name!r}: in a string tensor, the bytes are a single string, so the shape cannot vary; "
            'write "shape": [] in the tensor'
        )
    if field.max_length is None or field.length is not None:
        example = BYTES if field.bytes else EXAMPLE
        raise ValueError(
            f'field {field.name!r} has a varying length, so it must have "max_length" instead of "length": {example}'
        )
    _check_most(field, shape, tensor.dtype)
    field_sources.check_field(field.name, field.source, tensor.dtype, path=field.path, array=field.array, raw=field.bytes)
    if tensor.default is not None or field.default is not None:
        hint = 'with "required": false an absent field is empty'
        raise ValueError(f"field {field.name!r} has a varying length, so it must not have a default; {hint}")
    if tensor.pad is not None and (fault := value_fault(tensor.pad, tensor.dtype, nan=True)):
        raise ValueError(f'the value of "pad": {fault}')


def _check_most(field: Any, shape: Sequence[int], dtype: str) -> None:
    """Raise ValueError if `max_length` allows more elements or bytes than a tensor may have."""
    elements = shapes.step_size(shape) * field.max_length
    size = elements * binary_fields.item_size(dtype) if field.bytes else 0
    if size > binary_fields.MAX_BYTES:
        limit = f'it may have at most {binary_fields.MAX_BYTES}; lower "max_length"'
        raise ValueError(f"the shape allows field {field.name!r} {size} bytes; {limit}")
    if not field.bytes and elements > MAX_WIDTH:
        raise ValueError(
            f'the shape allows field {field.name!r} {elements} elements; it may have at most {MAX_WIDTH}; lower "max_length"'
        )


def _check_derived(tensor: Any) -> None:
    """Raise ValueError if a mask or a tensor of lengths has keys, a dtype or a shape that it must not have."""
    key = "mask_of" if tensor.mask_of else "length_of"
    others = {"fields": tensor.fields, "value": tensor.value, "default": tensor.default, "pad": tensor.pad}
    others |= {"marks": tensor.length_of and tensor.marks}
    others |= {"axis": tensor.axis, "length_of": tensor.mask_of and tensor.length_of}
    if surplus := [name for name, value in others.items() if value is not None]:
        raise ValueError(f'a tensor with "{key}" is derived from another tensor; remove "{surplus[0]}" from it')
    if tensor.dtype == "string":
        raise ValueError(f'a tensor with "{key}" must have a dtype of numbers or bool, not string')
    if tensor.shape is not None and shapes.varies(tensor.shape) is not (key == "mask_of"):
        allowed = "-1 for the length, such as [-1] or [1, 1, -1]" if key == "mask_of" else "no -1, such as [] or [1]"
        raise ValueError(f'the shape {tensor.shape} is not valid for a tensor with "{key}", whose shape must have {allowed}')


def check_together(tensors: Sequence[TensorInput]) -> None:
    """Check the tensors of varying length, masks and tensors of lengths of a signature against each other.

    Raises:
        ValueError: Tensors with the same `axis` contradict each other. Or a mask or a tensor of lengths is derived from a
            tensor without a varying length. Or the dtype of a tensor of lengths cannot hold the largest length.
    """
    varying = {tensor.tensor: tensor for tensor in tensors if tensor.varies}
    for tensor in varying.values():
        first = next(other for other in varying.values() if other.axis == tensor.axis)
        names = f"{first.tensor!r} and {tensor.tensor!r}"
        if (first.pad is None) is not (tensor.pad is None):
            raise ValueError(
                f'tensors {names} have the same "axis": write "pad" in both or in neither, or give each its own "axis"'
            )
        if (most := first.fields[0].max_length) != tensor.fields[0].max_length:
            raise ValueError(
                f'tensors {names} have the same "axis" but different lengths: '
                f'write "max_length": {most} in both, or give each its own "axis"'
            )
    for tensor in tensors:
        origin = tensor.mask_of or tensor.length_of
        if origin is None:
            continue
        if origin not in varying:
            names = ", ".join(map(repr, sorted(varying))) or "none"
            raise ValueError(
                f"tensor {tensor.tensor!r} is derived from {origin!r}, but {origin!r} is not a tensor of varying length; "
                f"the tensors of varying length are: {names}"
            )
        longest = varying[origin].fields[0].max_length
        if tensor.length_of and tensor.dtype in INTEGER_LIMITS and (fault := value_fault(longest, tensor.dtype)):
            raise ValueError(f"tensor {tensor.tensor!r} contains lengths of up to {longest}, but {fault}")


def accepts_arrays_of(new: InputField, old: InputField) -> bool:
    """Return whether every array that is valid for the field `old` is valid for `new`; True if both fields are scalars."""
    if not new.varies:
        return old.array == new.array and old.shape in (None, new.shape)
    if old.array is None or new.shape is None:
        return False
    if old.varies:
        return old.shape == new.shape and old.max_length <= new.max_length
    length, rest = divmod(old.array, shapes.step_size(new.shape))
    nested = old.shape in (None, shapes.with_length(new.shape, length))
    return not rest and length <= new.max_length and nested


def find_unequal_lengths(old: Signature, new: Signature) -> tuple[str, str] | None:
    """Return the names of two fields whose arrays must have equal lengths in `new` but not in `old`; None if there are none."""
    old_arrays = {field.name: (old_tensor, field) for old_tensor in old.fed for field in old_tensor.fields if field.array}
    firsts: dict[str, str] = {}
    for new_tensor in (candidate for candidate in new.fed if candidate.varies):
        name = new_tensor.fields[0].name
        first = firsts.setdefault(new_tensor.axis, name)
        if name == first or first not in old_arrays or name not in old_arrays:
            continue
        (tensor, field) = old_arrays[name]
        (before, other) = old_arrays[first]
        shared = tensor.varies and before.varies and tensor.axis == before.axis
        same = not field.varies and not other.varies and field.array == other.array
        if not shared and not same:
            return first, name
    return None


def describe_unequal_lengths(pair: tuple[str, str]) -> str:
    """Return a message about two fields that `find_unequal_lengths` returned."""
    return f"fields {pair[0]} and {pair[1]} must have the same length; the older version does not require it"
