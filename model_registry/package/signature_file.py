"""What may stand in `signature.json`, checked before anything is made of it: every key, type, range and combination.

Errors name the place, the value, and what may stand there instead.
"""

import difflib
from collections.abc import Iterable
from typing import Any, NoReturn

import msgspec

from model_registry.errors import Refused

MAX_BYTES = 1 << 20
MAX_WIDTH = 1 << 20  # elements of one event's row of a tensor
FLOAT_LIMITS = {"float16": 65504.0, "float32": 3.4028234663852886e38, "float64": 1.7976931348623157e308}  # IEEE 754 maxima
INTEGER_LIMITS = {f"{kind}{bits}": integer for bits in (8, 16, 32, 64) for kind, integer in (
    ("int", (-(1 << bits - 1), (1 << bits - 1) - 1)), ("uint", (0, (1 << bits) - 1)))}  # fmt: skip
DTYPES = (*FLOAT_LIMITS, *INTEGER_LIMITS, "bool", "string")


class SignatureError(Refused):
    """A signature that says nothing, or two things at once."""


def check(data: bytes | str) -> dict[str, Any]:
    """The document, every part of which is as the types of `signature.py` need it. Raises SignatureError."""
    if len(data) > MAX_BYTES:
        raise SignatureError(f"signature.json has {len(data)} bytes; at most {MAX_BYTES} are read")
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SignatureError(f"signature.json is no JSON: {error}") from None
    top = _object(document, "signature.json", required=("inputs", "output"), optional=("labels", "decision"))
    for at, tensor in enumerate(_list(top["inputs"], "inputs")):
        _check_tensor(tensor, f"inputs[{at}]")
    _distinct((tensor["tensor"] for tensor in top["inputs"]), "inputs: tensor")
    _check_shared_fields(top["inputs"])
    _check_outputs(top["output"])
    if top.get("labels") is not None:
        labels = _list(top["labels"], "labels")
        _distinct((_text(label, f"labels[{at}]") for at, label in enumerate(labels)), "labels: label")
    if top.get("decision") is not None:
        _check_decision(top)
    return top


def value_fault(value: object, dtype: str, *, nan: bool = False) -> str | None:
    """Why a JSON value is none of a dtype, or None if it is. `nan` allows the word "nan" for a float."""
    if dtype in INTEGER_LIMITS:
        low, high = INTEGER_LIMITS[dtype]
        good = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        return None if good else f"{value!r} is no {dtype} ({low} to {high})"
    if dtype == "bool":
        return None if isinstance(value, bool) else f"{value!r} is no bool (true or false)"
    if dtype == "string":
        return None if isinstance(value, str) else f"{value!r} is no string"
    if nan and value == "nan":
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    good = number and abs(value) <= FLOAT_LIMITS[dtype]  # type: ignore[arg-type]  # NaN compares false
    return None if good else f"{value!r} is no finite {dtype}" + (' (NaN is written "nan")' if nan else "")


def _check_tensor(raw: object, where: str) -> None:
    tensor = _object(raw, where, required=("tensor", "dtype", "fields"), optional=("default",))
    _text(tensor["tensor"], f"{where}.tensor")
    dtype = tensor["dtype"]
    if dtype not in DTYPES:
        _fail(f"{where}.dtype", f"{dtype!r} is no dtype; {nearest(str(dtype), DTYPES)}")
    _check_default(tensor, where, dtype)
    fields = _list(tensor["fields"], f"{where}.fields")
    for at, one in enumerate(fields):
        _check_field(one, f"{where}.fields[{at}]", tensor)
    _distinct((_name(one) for one in fields), f"{where}: field")
    if len(fields) > 1 and any(isinstance(one, dict) and one.get("array") for one in fields):
        _fail(where, "a tensor takes one array field and no other beside it; use a tensor for each")


def _check_field(raw: object, where: str, tensor: dict[str, Any]) -> None:
    if isinstance(raw, str):
        _text(raw, where)
        return
    field = _object(raw, where, required=("name",), optional=("required", "default", "array", "length"))
    _text(field["name"], f"{where}.name")
    for key in ("required", "array"):
        if not isinstance(field.get(key, False), bool):
            _fail(f"{where}.{key}", f"{field[key]!r} is neither true nor false")
    _check_default(field, where, tensor["dtype"])
    if field.get("required") is False and field.get("default") is None and tensor.get("default") is None:
        example = '"nan"' if tensor["dtype"] in FLOAT_LIMITS else '""' if tensor["dtype"] == "string" else "0"
        _fail(where, f'field {field["name"]!r} is not required and has no default; write "default": {example}, for instance')
    if bool(field.get("array")) != ("length" in field):
        _fail(where, 'an array field is written {"name": ..., "array": true, "length": n}')
    if "length" in field:
        _whole(field["length"], f"{where}.length", 1, MAX_WIDTH)


def _check_default(raw: dict[str, Any], where: str, dtype: str) -> None:
    if raw.get("default") is not None and (fault := value_fault(raw["default"], dtype, nan=True)):
        _fail(f"{where}.default", fault)


def _check_shared_fields(inputs: list[dict[str, Any]]) -> None:
    """A field may feed several tensors, but then it is the same field: same dtype, default and so on."""
    seen: dict[str, tuple[str, Any]] = {}
    for tensor in inputs:
        for one in tensor["fields"]:
            rest = {} if isinstance(one, str) else {key: value for key, value in one.items() if key != "name"}
            declared = (tensor["dtype"], {"default": tensor.get("default")} | rest)
            if seen.setdefault(_name(one), declared) != declared:
                _fail("inputs", f"field {_name(one)!r} feeds two tensors with another dtype, default or length in each")


def _check_outputs(raw: object) -> None:
    if isinstance(raw, dict):
        _check_output(raw, "output", required=("tensor",))
        return
    outputs = _list(raw, "output")
    for at, output in enumerate(outputs):
        _check_output(output, f"output[{at}]", required=("name", "tensor"))
    _distinct((output["name"] for output in outputs), "output: name")


def _check_output(raw: object, where: str, required: tuple[str, ...]) -> None:
    output = _object(raw, where, required=required, optional=("index",))
    for key in required:
        _text(output[key], f"{where}.{key}")
    if output.get("index") is not None:
        _whole(output["index"], f"{where}.index", 0, MAX_WIDTH)


def _check_decision(top: dict[str, Any]) -> None:
    decision = _object(top["decision"], "decision", required=("threshold", "at_or_above", "below"))
    if fault := value_fault(decision["threshold"], "float64"):
        _fail("decision.threshold", fault)
    for key in ("at_or_above", "below"):
        _text(decision[key], f"decision.{key}")
    outputs = top["output"] if isinstance(top["output"], list) else [top["output"]]
    if len(outputs) > 1:
        _fail("decision", "several named outputs have no one score to decide on; leave decision out")
    if top.get("labels") is not None and outputs[0].get("index") is None:
        _fail("decision", 'the score is an array with a label each; name the deciding column: "output": {..., "index": n}')


def _name(field: Any) -> str:
    return str(field if isinstance(field, str) else field["name"])


def _object(raw: object, where: str, *, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    if not isinstance(raw, dict):
        _fail(where, f"{raw!r:.100} is no object with the keys {', '.join(required)}")
    valid = required + optional
    for key in raw:
        if key not in valid:
            _fail(where, f"unknown key {key!r}; {nearest(key, valid)}")
    for key in required:
        if key not in raw:
            _fail(where, f"the key {key!r} is missing")
    return raw


def _list(raw: object, where: str) -> list[Any]:
    if not isinstance(raw, list) or not raw:
        _fail(where, f"{raw!r:.100} is no list with at least one entry")
    return raw


def _text(raw: object, where: str) -> str:
    if not isinstance(raw, str) or not raw:
        _fail(where, f"{raw!r:.100} is no text of at least one character")
    return raw


def _whole(raw: object, where: str, low: int, high: int) -> None:
    if not isinstance(raw, int) or isinstance(raw, bool) or not low <= raw <= high:
        _fail(where, f"{raw!r:.100} is no whole number from {low} to {high}")


def _distinct(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            _fail("signature.json", f"{what} {name!r} stands there twice")
        seen.add(name)


def nearest(word: str, valid: Iterable[str]) -> str:
    """The nearest valid word, and all where none is near."""
    near = difflib.get_close_matches(word, list(valid), n=1)
    return f"did you mean {near[0]!r}?" if near else f"it must be one of {', '.join(valid)}"


def _fail(where: str, what: str) -> NoReturn:
    raise SignatureError(f"{where}: {what}", "model_registry/README.md describes signature.json")
