"""What `signature.json` may say of outputs, labels and the decision."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from model_registry.package.dtypes import value_fault
from model_registry.package.shapes import MAX_RANK, MAX_WIDTH, VARIES
from model_registry.package.signature import Argmax, Decision, Output
from model_registry.package.validation import Part, Text, each_once, nearest, whole

MOST_CLASSES = 1_000  # of an event's score: more is what a whole row is for

Labels = Annotated[list[Text], Field(min_length=1)]


def _threshold(value: Any) -> float:
    if fault := value_fault(value, "float64"):
        raise ValueError(fault)
    return float(value)


def _shape(raw: Any) -> Any:
    if raw is None:
        return None
    if not isinstance(raw, list) or len(raw) > MAX_RANK:
        raise ValueError(
            f"{raw!r:.100} is no list of at most {MAX_RANK} lengths, those that follow the batch; -1 is any length"
        )
    for one in raw:
        if one is None or (one != -1 and whole(1, MAX_WIDTH, one) is None):
            raise ValueError("null is no length; -1 is any length")
    if (count := math.prod(map(abs, raw))) > MAX_WIDTH:
        raise ValueError(f"{raw} holds {count} elements; at most {MAX_WIDTH} are written")
    return raw


class _Output(Part):
    tensor: Text
    index: Annotated[int, BeforeValidator(partial(whole, 0, MAX_WIDTH))] | None = None
    shape: Annotated[list[int], BeforeValidator(_shape)] | None = None
    top: Annotated[int, BeforeValidator(partial(whole, 1, MOST_CLASSES))] | None = None
    labels: Labels | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        stated = [key for key in ("index", "shape", "top") if getattr(self, key) is not None]
        if len(stated) > 1:
            raise ValueError(f"{' and '.join(stated)} read the tensor in two ways; leave one of them out")
        each_once(self.labels or (), "labels: label")
        return self

    def read(self) -> Output:
        shape = None if self.shape is None else tuple(self.shape)
        labels = None if self.labels is None else tuple(self.labels)
        return Output(getattr(self, "name", None), self.tensor, self.index, shape, self.top, labels)


class _NamedOutput(_Output):
    name: Text


class _Decision(Part):
    threshold: Annotated[float, BeforeValidator(_threshold)]
    at_or_above: Text
    below: Text
    output: Text | None = None

    def read(self) -> Decision:
        return Decision(**self.model_dump())


def _true(value: Any) -> bool:
    if value is not True:
        raise ValueError(f'{value!r:.100} is no way to decide; write "argmax": true, or leave decision out')
    return True


class _Argmax(Part):
    argmax: Annotated[bool, BeforeValidator(_true)]
    threshold: Annotated[float, BeforeValidator(_threshold)] | None = None
    below: Text | None = None
    output: Text | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.threshold is None) is not (self.below is None):
            example = '"threshold": 0.5, "below": "unsure"'
            raise ValueError(f"below a threshold another name stands for the label: write both, such as {example}, or neither")
        return self

    def read(self) -> Argmax:
        return Argmax(self.threshold, self.below, self.output)


Stated = Annotated[
    Annotated[_Output, Tag("(one)")] | Annotated[list[_NamedOutput], Field(min_length=1), Tag("(several)")],
    Discriminator(lambda raw: "(several)" if isinstance(raw, list) else "(one)"),
]
Rule = Annotated[
    Annotated[_Decision, Tag("(threshold)")] | Annotated[_Argmax, Tag("(argmax)")],
    Discriminator(lambda raw: "(argmax)" if isinstance(raw, dict) and "argmax" in raw else "(threshold)"),
]


def check(outputs: Sequence[Output], labels: Sequence[str], rule: _Decision | _Argmax | None) -> None:
    """Raises ValueError where outputs, the signature's labels and the decision do not fit each other."""
    each_once((one.name for one in outputs if one.name is not None), "output: name")
    each_once(labels, "labels: label")
    decided = _decided(outputs, rule) if rule else None
    for one in outputs:
        place = "output" if one.name is None else f"output {one.name!r}"
        known = one.labels or labels
        if one.top and not known:
            raise ValueError(f'{place}: top gives classes by their labels; write "labels": ["cat", "dog", ...], one a column')
        if one.top and one.top > len(known):
            raise ValueError(f"{place}: top is {one.top}, and there are {len(known)} labels")
        if one.labels and not one.top and not (one is decided and isinstance(rule, _Argmax)):
            raise ValueError(f"{place}: labels of one output are those of its top, or of a decision by argmax; leave them out")
    if decided:
        _check_rule(decided, decided.labels or labels, rule, alone=len(outputs) == 1)


def _decided(outputs: Sequence[Output], rule: _Decision | _Argmax) -> Output:
    """The output that is decided on. Raises ValueError."""
    names = [one.name for one in outputs if one.name is not None]
    if rule.output is None:
        if len(outputs) > 1:
            hint = f'name the one to decide on: "output": "{names[0]}"'
            raise ValueError(f"decision: several named outputs have no one score to decide on; {hint}")
        return outputs[0]
    if rule.output not in names:
        said = nearest(rule.output, names) if names else "the only output has no name: leave it out"
        raise ValueError(f"decision.output: {rule.output!r:.100} is no output; {said}")
    return outputs[names.index(rule.output)]


def _check_rule(decided: Output, labels: Sequence[str], rule: _Decision | _Argmax | None, *, alone: bool) -> None:
    """Raises ValueError where the rule does not fit the output that it decides on. `alone`: it is the only one."""
    if isinstance(rule, _Argmax):
        if decided.index is not None or decided.shape is not None:
            raise ValueError("decision: argmax takes the largest of a row; leave index and shape of that output out")
        if not labels:
            raise ValueError('decision: argmax gives a label; write "labels": ["cat", "dog", ...], one a column')
    elif VARIES in (decided.shape or ()):
        raise ValueError(
            f"decision: the score is an array of any length, shape {list(decided.shape or ())}; decide on a number"
        )
    elif decided.top or (alone and labels and decided.index is None):
        hint = 'name the deciding column, "output": {..., "index": n}, or write "decision": {"argmax": true}'
        raise ValueError(f"decision: the score is an array with a label each; {hint}")
