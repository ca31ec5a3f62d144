"""The score record in Protobuf.

The fields that are the same in all records of a batch are encoded once and appended to each record. This is valid because a
concatenation of encoded messages is a message.
"""

import functools
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from scorer.scores.record import RecordColumns, RecordEncoder, Value, values
from scorer.scores.schema import NUMBERS_OF
from scorer.settings.carry import CarriedField, Scalar

CARRIED = "carried"
PATH = b"\0"  # path of the first message in Confluent's header
DESCRIBED = files(__package__).joinpath("score.binpb")
"""The descriptor set that protoc has generated from `schema.protobuf()`."""
TYPES = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "long": FieldDescriptorProto.TYPE_INT64,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "boolean": FieldDescriptorProto.TYPE_BOOL,
}


def described(carry: Sequence[CarriedField]) -> FileDescriptorSet:
    """Return the same descriptor set that protoc would generate from `schema.protobuf(carry)`."""
    descriptor_set = FileDescriptorSet.FromString(DESCRIBED.read_bytes())
    if not carry:
        return descriptor_set
    file = descriptor_set.file[-1]
    score = next(message for message in file.message_type if message.name == "Score")
    identity = {"name": CARRIED, "number": NUMBERS_OF[CARRIED], "type_name": ".scorestream.Carried"}
    score.field.add(type=FieldDescriptorProto.TYPE_MESSAGE, label=FieldDescriptorProto.LABEL_OPTIONAL, **identity)
    message = DescriptorProto(name="Carried")
    for index, field in enumerate(carry):
        message.field.add(
            name=field.name,
            number=index + 1,
            label=FieldDescriptorProto.LABEL_OPTIONAL,
            type=TYPES[field.type or ""],
            oneof_index=index,
            proto3_optional=True,
        )
        message.oneof_decl.add(name=f"_{field.name}")
    file.message_type.append(message)
    return descriptor_set


@functools.lru_cache
def message_class(carry: tuple[CarriedField, ...]) -> Any:
    """Return the Protobuf message class of score records with these carried fields."""
    return message_factory.GetMessages(described(carry).file)["scorestream.Score"]


class ProtobufRecordEncoder(RecordEncoder):
    """Encoder of the Protobuf records of one version.

    Each record begins with `header`, which is empty if no schema registry is configured.
    """

    plain = False

    def __init__(self, header: bytes, carry: tuple[CarriedField, ...] = (), /, **provenance: str) -> None:
        super().__init__(carry, **provenance)
        self._header = header
        self._new = message_class(carry)

    def _encoded(self, columns: RecordColumns, tail: Mapping[str, str | int]) -> list[bytes]:
        last = self._new(**tail).SerializeToString()
        records = []
        rows = zip(*columns._replace(scores=values(columns.scores)), self._ends(last, columns.carried), strict=True)
        for id_, value, decision, (topic, partition), offset, ms, _, end in rows:
            record = self._new(id=id_, decision=decision, event_ms=ms)
            record.source.topic = topic
            record.source.partition = partition
            record.source.offset = offset
            _set_score(record.score, value)
            records.append(self._header + record.SerializeToString() + end)
        return records

    def _with_carried(self, last: bytes, carried: Mapping[str, Scalar]) -> bytes:
        record = self._new(carried={name: value for name, value in carried.items() if value is not None})
        record.carried.SetInParent()
        return last + bytes(record.SerializeToString())


def _set_score(score: Any, value: Value) -> None:
    if isinstance(value, float):
        score.number = value
    elif isinstance(value, list):
        score.numbers.numbers[:] = value
        score.numbers.SetInParent()
    elif value is not None:
        for name, numbers in value.items():
            score.named.outputs.add(name=name, numbers=numbers)


def as_json(value: bytes, start: int, carry: tuple[CarriedField, ...] = ()) -> Any:
    """Decode a score record to JSON values. The record begins after a header of `start` bytes.

    Raises ValueError if the value is not a score record.
    """
    # There is no `carried` if the record was written before `output.carry` was configured.
    try:
        record = message_class(carry).FromString(value[start:])
    except DecodeError as error:
        raise ValueError(f"this is not a score record in Protobuf: {error}") from error
    if not record.HasField("source"):  # empty bytes are a valid message
        raise ValueError("this is not a score record in Protobuf: the source of the event is missing")
    source = record.source
    nested = {
        "score": _get_score(record.score),
        "decision": record.decision if record.HasField("decision") else None,
        "source": {field.name: getattr(source, field.name) for field in source.DESCRIPTOR.fields},
    }
    names = [field.name for field in record.DESCRIPTOR.fields]
    if not record.HasField("fallback"):
        names.remove("fallback")
    if carry and record.HasField(CARRIED):
        carried = record.carried
        nested[CARRIED] = {
            field.name: getattr(carried, field.name) if carried.HasField(field.name) else None for field in carry
        }
    elif carry:
        names.remove(CARRIED)
    return {name: nested.get(name, getattr(record, name)) for name in names}


def _get_score(score: Any) -> Value:
    match score.WhichOneof("value"):
        case "number":
            return float(score.number)
        case "numbers":
            return list(score.numbers.numbers)
        case "named":
            return {output.name: list(output.numbers) for output in score.named.outputs}
    return None
