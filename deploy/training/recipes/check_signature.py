"""The signatures that the built-in recipes support, and the output shape that each signature requires."""

from model_registry.package.signature import Argmax, Output, Signature
from publisher.errors import USAGE, Fatal
from training.snapshot.target import Target


def check(signature: Signature, target: Target, recipe: str) -> None:
    """Check that the recipe supports the signature for this target.

    Raises Fatal (exit code 2) with the tensor, field or output that is not supported.
    """
    if fault := _fault(signature, target):
        hint = "give a signature of tensors with a fixed shape and one output, or train the model elsewhere and push it"
        raise Fatal(f"recipe {recipe} does not support this signature: {fault}", hint, USAGE)


def check_inputs(signature: Signature, recipe: str) -> None:
    """Check that rows can be stored for the inputs of the signature.

    Raises Fatal (exit code 2) with the tensor or field that is not supported.
    """
    if fault := _input_fault(signature):
        hint = "give a signature of tensors with a fixed shape; a text is a field of the dtype string"
        raise Fatal(f"recipe {recipe} does not support this signature: {fault}", hint, USAGE)


def output_row(signature: Signature, target: Target) -> tuple[int, ...]:
    """Return the shape of one row of the output, without the batch dimension.

    For two classes, the shape is (2,) for the probabilities of both classes, and (1,) or () for the probability of the second
    class. For K classes it is (K,), for a regression (1,) or ().
    """
    output = signature.outputs[0]
    if target.kind == "classes":
        return (len(target.classes),)
    if output.index is not None:
        return (output.index + 1,)
    if target.kind == "binary" and (output.top or signature.labelled or isinstance(signature.decision, Argmax)):
        return (2,)
    return (1,) if output.shape is None else output.shape


def _input_fault(signature: Signature) -> str | None:
    for tensor in signature.inputs:
        if tensor.fields and not tensor.batch:
            return f"tensor {tensor.tensor!r} has no batch dimension"
        if tensor.varies or tensor.mask_of or tensor.length_of:
            return f"tensor {tensor.tensor!r} has a variable length"
    for field in signature.fields:
        if field.raw:
            return f"field {field.name!r} is bytes"
    return None


def _fault(signature: Signature, target: Target) -> str | None:
    if fault := _input_fault(signature):
        return fault
    if len(signature.outputs) > 1:
        return f"it has {len(signature.outputs)} outputs: {', '.join(repr(output.name) for output in signature.outputs)}"
    output = signature.outputs[0]
    if target.kind == "classes":
        return _classes_fault(signature, output, target)
    return _number_fault(signature, output) if target.kind == "regression" else _output_fault(signature, output)


def _output_fault(signature: Signature, output: Output) -> str | None:
    labels = signature.labels_of(output)
    if labels and len(labels) != 2:
        return f"it has {len(labels)} labels, but there are two classes"
    if output.index is not None and output.index > 1:
        return f"output {output.tensor!r} is read at column {output.index}, but there are two classes"
    if output.index == 0 and labels:
        return f"output {output.tensor!r} is read at column 0, but the score is that of the second class"
    if output_row(signature, Target("binary")) not in ((), (1,), (2,)):
        return f"output {output.tensor!r} has the shape {list(output.shape or ())}; it may be [], [1] or [2]"
    return None


def _classes_fault(signature: Signature, output: Output, target: Target) -> str | None:
    count = len(target.classes)
    if output.index is not None:
        return f"output {output.tensor!r} is read at column {output.index}, but there are {count} classes: leave index out"
    if output.shape not in (None, (count,), (-1,)):
        return f"output {output.tensor!r} has the shape {list(output.shape or ())}, but there are {count} classes: [{count}]"
    if signature.labels_of(output) != target.classes:
        return f"its labels are {list(signature.labels_of(output))}, but the classes are {list(target.classes)}"
    return None


def _number_fault(signature: Signature, output: Output) -> str | None:
    if signature.labels_of(output):
        return f"output {output.tensor!r} has labels, but the label is a number"
    if output_row(signature, Target("regression")) not in ((), (1,)):
        return f"output {output.tensor!r} is a row of numbers, but the label is one number: its shape may be [] or [1]"
    return None
