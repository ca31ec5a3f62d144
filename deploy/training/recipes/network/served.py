"""Which signatures a network of this recipe serves."""

from model_registry.package.signature import Output, Signature
from publisher.errors import USAGE, Fatal


def check(signature: Signature) -> None:
    """Raises Fatal (2) for tensors that a network of this recipe does not take."""
    for one in signature.inputs:
        if not one.fields or one.varies or not one.batch:
            told = "is a constant or made of another" if not one.fields else "has a length that varies" if one.varies else ""
            hint = "give a signature whose tensors have fields and a fixed shape, or take recipe: trees"
            raise Fatal(f"recipe network: the tensor {one.tensor!r} {told or 'has no batch dimension'}", hint, USAGE)


def column(signature: Signature) -> int:
    """Which column of the output is the probability of the second class: 1, where both are given; 0, where it stands alone.

    Raises Fatal (2) for an output that is no such probability.
    """
    output = signature.outputs[0]
    if len(signature.outputs) > 1:
        names = ", ".join(one.tensor for one in signature.outputs)
        raise Fatal(f"recipe network gives one output, and the signature reads {names}", "give a signature of one", USAGE)
    at = _column(output, len(signature.labels_of(output)))
    if at not in (0, 1):
        hint = 'read one number ({"tensor": ...}) or the second of two ({"tensor": ..., "index": 1})'
        raise Fatal(f"recipe network gives two probabilities, and the signature reads something else: {output}", hint, USAGE)
    return at


def _column(output: Output, labels: int) -> int:
    if output.index is not None:
        return output.index
    width = labels or (1 if output.shape is None else output.shape[-1] if len(output.shape) == 1 else 0)
    return width - 1
