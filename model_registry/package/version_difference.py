"""Compares two versions, and decides whether every valid event of the older one is valid for the newer one. Has no I/O."""

from collections.abc import Sequence
from dataclasses import dataclass

from model_registry.oci.manifest import VersionManifest
from model_registry.package import dynamic_shapes, event_tree, field_sources, json_path
from model_registry.package.shapes import format_shape
from model_registry.package.signature import VALUES, Argmax, InputField, Output, Signature, TensorInput

IMAGE_HAS_NO_SIGNATURE = "the manifest of a container image does not contain its signature; pull both and compare"
MAX_LABELS = 12  # labels that are shown; a model may have thousands
NO_SIGNATURE = "neither version states a signature"


@dataclass(frozen=True, slots=True)
class VersionDifference:
    """The differences between an older version and a newer one.

    Attributes:
        added: Paths of files that only the newer version has, sorted.
        removed: Paths of files that only the older version has, sorted.
        changed: Paths of files whose content differs, sorted.
        signature: The differences in inputs, outputs, labels and decision, one line for each difference.
        breaks: Reasons why events of the older version may be invalid for the newer one.
        unknown: The reason why the signatures cannot be compared; empty if they can.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    signature: tuple[str, ...]
    breaks: tuple[str, ...]
    unknown: str = ""

    @property
    def compatible(self) -> bool | None:
        """Whether valid events of the older version are valid for the newer one; None if unknown."""
        return None if self.unknown else not self.breaks


def compare_versions(
    old: VersionManifest, new: VersionManifest, old_signature: Signature | None, new_signature: Signature | None
) -> VersionDifference:
    """Compare the files and signatures of two versions.

    Args:
        old: The older version's manifest.
        new: The newer version's manifest.
        old_signature: The older version's signature; None if that version has none.
        new_signature: The newer version's signature; None if that version has none.
    """
    before = _digests(old)
    after = _digests(new)
    shared = before.keys() & after.keys()
    unknown = IMAGE_HAS_NO_SIGNATURE if old.layers or new.layers else "" if old_signature or new_signature else NO_SIGNATURE
    lines, breaks = ((), ()) if unknown else _compare_signatures(old_signature, new_signature)
    return VersionDifference(
        tuple(sorted(after.keys() - before.keys())),
        tuple(sorted(before.keys() - after.keys())),
        tuple(sorted(path for path in shared if before[path] != after[path])),
        lines,
        breaks,
        unknown,
    )


def _digests(version: VersionManifest) -> dict[str, str]:
    """Return the digest of each file of a version by path.

    The manifest of a container image lists no files. In this case, the result has the digest of each layer by name.
    """
    layers = {f"layer {number}": layer.digest for number, layer in enumerate(version.layers, start=1)}
    return {file.path: file.content.digest for file in version.files} | layers


def _compare_signatures(old: Signature | None, new: Signature | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the differences between two signatures, and the reasons why they are incompatible, as lines of text.

    At most one of the signatures is None.
    """
    if old and new:
        return _signatures(old, new)
    line = "the newer version states a signature, the older one none" if new else "the newer version states no signature"
    return (line,), (line,)


def _signatures(old: Signature, new: Signature) -> tuple[tuple[str, ...], tuple[str, ...]]:
    before = {f.name: f for f in old.fields}
    after = {f.name: f for f in new.fields}
    lines = [f"field {name} is no longer read" for name in before if name not in after]
    lines += [f"field {name} is new ({_shown(field)})" for name, field in after.items() if name not in before]
    both = [(before[name], field) for name, field in after.items() if name in before]
    lines += [
        f"field {before_field.name}: {_shown(before_field)} -> {_shown(later)}"
        for before_field, later in both
        if before_field != later
    ]
    lines += _tensors(old, new)
    lines += _answers(old, new)
    predecessor = field_sources.predecessors(old)
    events = event_tree.build_tree((f.name, f.steps) for f in field_sources.only_value_fields(old).fields)
    faults = [_fault(predecessor(f), f) or _path_conflict_reason(events, predecessor(f), f) for f in new.fields]
    breaks = [fault for fault in faults if fault]
    if pair := dynamic_shapes.find_unequal_lengths(old, new):
        breaks.append(dynamic_shapes.describe_unequal_lengths(pair))
    return tuple(lines), tuple(breaks)


def _tensors(old: Signature, new: Signature) -> list[str]:
    """Return a line for each input tensor in both signatures that differs in shape, constant value, padding or mask."""
    before = {tensor.tensor: tensor for tensor in old.inputs}
    both = [(before[tensor.tensor], tensor) for tensor in new.inputs if tensor.tensor in before]
    return [
        f"tensor {later.tensor}: {describe_tensor(earlier)} -> {describe_tensor(later)}"
        for earlier, later in both
        if _input_key(earlier) != _input_key(later)
    ]


def _answers(old: Signature, new: Signature) -> list[str]:
    """Return a line for each difference in outputs, labels, decision and batch tolerance."""
    before, after = ({output.name or "score": output for output in signature.outputs} for signature in (old, new))
    lines = [f"output {name} is no longer given" for name in before if name not in after]
    lines += [f"output {name} is new: {describe_output(new, output)}" for name, output in after.items() if name not in before]
    both = [(name, before[name], output) for name, output in after.items() if name in before]
    lines += [
        f"output {name}: {describe_output(old, earlier)} -> {describe_output(new, output)}"
        for name, earlier, output in both
        if earlier != output
    ]
    if old.labels != new.labels:
        lines.append(f"labels: {describe_labels(old.labels)} -> {describe_labels(new.labels)}")
    if old.decision != new.decision:
        lines.append(f"decision: {describe_decision(old)} -> {describe_decision(new)}")
    if old.batch_tolerance != new.batch_tolerance:
        lines.append(f"batch_tolerance: {old.batch_tolerance or 'none'} -> {new.batch_tolerance or 'none'}")
    return lines


def describe_output(signature: Signature, output: Output) -> str:
    """Describe an output of the signature: the name of the model's output tensor, and the part of the tensor that is read."""
    if output.index is not None:
        return f"a number, column {output.index} of {output.tensor}"
    if output.top:
        return f"the {output.top} largest of {output.tensor}, of {describe_labels(signature.labels_of(output))}"
    labels = f", labels {describe_labels(output.labels)}" if output.labels else ""
    if output.shape is not None:
        return f"{format_shape((None, *output.shape))} of {output.tensor}{labels}"
    return f"the whole row of {output.tensor}{labels}"


def describe_labels(labels: Sequence[str] | None) -> str:
    """Return the first MAX_LABELS labels and the number of further labels as text; "none" if there are no labels."""
    if not labels:
        return "none"
    return ", ".join(labels[:MAX_LABELS]) + (f" and {len(labels) - MAX_LABELS} more" if len(labels) > MAX_LABELS else "")


def describe_decision(signature: Signature) -> str:
    """Describe the rule that derives the decision from a score; "none" if there is no rule."""
    rule = signature.decision
    where = f" of {rule.output}" if rule and rule.output else ""
    if isinstance(rule, Argmax):
        return f"the label of the largest{where}" + (f", {rule.below} below {rule.threshold:g}" if rule.below else "")
    return f"{rule.at_or_above} (score{where} {rule.threshold:g} or more), else {rule.below}" if rule else "none"


def describe_tensor(tensor: TensorInput) -> str:
    """Describe a tensor: its dtype, its shape, the value of a constant, and the rules for a length that varies."""
    details = "" if tensor.value is None else f", always {tensor.value!r:.60}"
    details += f", -1 up to {tensor.fields[0].max_length}" if tensor.varies else ""
    details += "" if tensor.pad is None else f", padded with {tensor.pad!r:.60}"
    mask = "mask of" if tensor.marks == VALUES else f"mask of the {tensor.marks} of"
    derivations = {"axis": tensor.axis, mask: tensor.mask_of, "length of": tensor.length_of}
    details += "".join(f", {relation} {of}" for relation, of in derivations.items() if of)
    return f"{tensor.dtype} {format_shape(tensor.full_shape)}{details}"


def _input_key(tensor: TensorInput) -> tuple[object, ...]:
    return (
        tensor.full_shape,
        repr(tensor.value),
        repr(tensor.pad),
        tensor.axis,
        tensor.mask_of,
        tensor.marks,
        tensor.length_of,
    )  # repr, because NaN is not equal to itself


def _fault(earlier: InputField | None, later: InputField) -> str:
    if earlier is None:
        return f"field {later.name} is required and was not read" if later.required else ""
    if later.source != earlier.source:
        old_source, new_source = (
            field.source or f"the event ({json_path.format_path(field.steps)})" for field in (earlier, later)
        )
        return f"field {later.name} came from {old_source} and comes from {new_source}"
    if field_sources.table_of(later) and field_sources.column_steps(later) != field_sources.column_steps(earlier):
        old_path, new_path = (json_path.format_path(field_sources.column_steps(field)) for field in (earlier, later))
        return f"field {later.name} was column {old_path} of {later.source} and is column {new_path}"
    if not later.source and later.steps != earlier.steps:
        old_path = json_path.format_path(earlier.steps)
        new_path = json_path.format_path(later.steps)
        return f"field {later.name} was read at {old_path} and is read at {new_path}"
    if later.required and not earlier.required:
        return f"field {later.name} is required and was optional"
    if (earlier.dtype, earlier.raw) != (later.dtype, later.raw) or not dynamic_shapes.accepts_arrays_of(later, earlier):
        return f"field {later.name} was {describe_type(earlier)} and is {describe_type(later)}"
    return ""


def _path_conflict_reason(events: event_tree.Tree, earlier: InputField | None, later: InputField) -> str:
    """Return why an event of the older version cannot also have the new field `later`; empty if the paths do not conflict.

    `events` is the tree of the older version's paths. `earlier` is the predecessor of the field; None if there is none.
    """
    fault = "" if earlier or later.source else event_tree.path_conflict(events, later.steps)
    return f"field {later.name} is read at {json_path.format_path(later.steps)}{fault}" if fault else ""


def describe_type(field: InputField) -> str:
    """Describe the value of a field: its dtype, whether it comes as bytes, its shape, and the largest varying length."""
    shape = list(field.shape) if field.shape else [field.array] if field.array else ""
    bound = f" up to {field.max_length}" if field.varies else ""
    return f"{'the bytes of ' if field.raw else ''}{field.dtype}{shape}{bound}"


def _shown(field: InputField) -> str:
    where = (
        f",{field_sources.describe_source(field)}"
        if field.source
        else f", at {json_path.format_path(field.path)}"
        if field.path
        else ""
    )
    absent = "required" if field.required else "empty where absent" if field.varies else f"default {field.default}"
    return f"{describe_type(field)}, {absent}{where}"
