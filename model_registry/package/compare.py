"""What differs between two versions, and whether events that were good for one are good for the other. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from model_registry.oci.manifest import Version
from model_registry.package import event_tree, paths, varying
from model_registry.package.shapes import written
from model_registry.package.signature import InputField, Signature, TensorInput

IMAGE = "the manifest of a container image does not tell its signature; pull both and compare"
NO_SIGNATURE = "neither version states a signature"


@dataclass(frozen=True, slots=True)
class Difference:
    """From an older version to a newer one. `breaks` says why events of the older one may be bad for the newer.

    `unknown` says why nobody can tell, and is empty where that is known. `signature` tells of inputs, outputs, labels and
    decision, a line each; file paths are sorted.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    signature: tuple[str, ...]
    breaks: tuple[str, ...]
    unknown: str = ""

    @property
    def compatible(self) -> bool | None:
        """Whether events that are good for the older version are good for the newer one; None: unknown."""
        return None if self.unknown else not self.breaks


def difference(old: Version, new: Version, old_signature: Signature | None, new_signature: Signature | None) -> Difference:
    before, after = _digests(old), _digests(new)
    shared = before.keys() & after.keys()
    unknown = IMAGE if old.layers or new.layers else "" if old_signature or new_signature else NO_SIGNATURE
    lines, breaks = ((), ()) if unknown else _told(old_signature, new_signature)
    return Difference(
        tuple(sorted(after.keys() - before.keys())),
        tuple(sorted(before.keys() - after.keys())),
        tuple(sorted(path for path in shared if before[path] != after[path])),
        lines,
        breaks,
        unknown,
    )


def _digests(version: Version) -> dict[str, str]:
    """Digests by file path; of a container image, whose manifest names no files, by the layer's place."""
    layers = {f"layer {number}": layer.digest for number, layer in enumerate(version.layers, start=1)}
    return {file.path: file.content.digest for file in version.files} | layers


def _told(old: Signature | None, new: Signature | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The differences of two signatures, and those among them that break. At least one signature is stated."""
    if old and new:
        return _signatures(old, new)
    line = "the newer version states a signature, the older one none" if new else "the newer version states no signature"
    return (line,), (line,)


def _signatures(old: Signature, new: Signature) -> tuple[tuple[str, ...], tuple[str, ...]]:
    before, after = {f.name: f for f in old.fields}, {f.name: f for f in new.fields}
    lines = [f"field {name} is not read any more" for name in before if name not in after]
    lines += [f"field {name} is new ({_shown(field)})" for name, field in after.items() if name not in before]
    both = [(before[name], field) for name, field in after.items() if name in before]
    lines += [f"field {was.name}: {_shown(was)} -> {_shown(now)}" for was, now in both if was != now]
    lines += _tensors(old, new)
    for what in ("outputs", "labels", "decision"):
        if getattr(old, what) != getattr(new, what):
            lines.append(f"{what}: {getattr(old, what)} -> {getattr(new, what)}")
    places = {f.steps: f for f in old.fields}
    events = event_tree.tree((f.name, f.steps) for f in old.fields)
    faults = [_fault(places.get(f.steps) or before.get(f.name), f) or _crossing(events, places, f) for f in new.fields]
    breaks = [fault for fault in faults if fault]
    if pair := varying.apart(old, new):
        breaks.append(varying.in_words(pair))
    return tuple(lines), tuple(breaks)


def _tensors(old: Signature, new: Signature) -> list[str]:
    """The tensors whose shape or constant differs, where both signatures have them."""
    before = {one.tensor: one for one in old.inputs}
    both = [(before[one.tensor], one) for one in new.inputs if one.tensor in before]
    return [f"tensor {now.tensor}: {told(was)} -> {told(now)}" for was, now in both if _fed(was) != _fed(now)]


def told(one: TensorInput) -> str:
    """A tensor in words: its dtype, its shape, the value of a constant, and what else is said of a length that varies."""
    said = "" if one.value is None else f", always {one.value!r:.60}"
    said += f", -1 up to {one.fields[0].max_length}" if one.varies else ""
    said += "" if one.pad is None else f", padded with {one.pad!r:.60}"
    made = {"axis": one.axis, "mask of": one.mask_of, "length of": one.length_of}
    said += "".join(f", {what} {of}" for what, of in made.items() if of)
    return f"{one.dtype} {written(one.given)}{said}"


def _fed(one: TensorInput) -> tuple[object, ...]:
    return one.given, repr(one.value), repr(one.pad), one.axis, one.mask_of, one.length_of  # NaN is not itself


def _fault(was: InputField | None, now: InputField) -> str:
    if was is None:
        return f"field {now.name} is required and was not read" if now.required else ""
    if now.steps != was.steps:
        return f"field {now.name} was read at {paths.written(was.steps)} and is read at {paths.written(now.steps)}"
    if now.required and not was.required:
        return f"field {now.name} is required and was optional"
    if was.dtype != now.dtype or not varying.takes(now, was):
        return f"field {now.name} was {_kind(was)} and is {_kind(now)}"
    return ""


def _crossing(events: event_tree.Tree, places: Mapping[tuple[paths.Step, ...], InputField], now: InputField) -> str:
    """Why a field cannot be read from events that were good."""
    fault = "" if now.steps in places else event_tree.crossing(events, now.steps)
    return f"field {now.name} is read at {paths.written(now.steps)}{fault}" if fault else ""


def _kind(field: InputField) -> str:
    if field.shape:
        return f"{field.dtype}{list(field.shape)}" + (f" up to {field.max_length}" if field.varies else "")
    return f"{field.dtype}[{field.array}]" if field.array else field.dtype


def _shown(field: InputField) -> str:
    where = f", at {paths.written(field.path)}" if field.path else ""
    absent = "required" if field.required else "empty where absent" if field.varies else f"default {field.default}"
    return f"{_kind(field)}, {absent}{where}"
