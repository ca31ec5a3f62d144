"""The score record in Protobuf. One schema for every model and version: what a consumer reads never changes under it.

A message is its parts one behind the other: what is constant for a version and a batch is encoded once.
"""

from collections.abc import Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from scorer.scores.record import RecordEncoder
from scorer.scores.values import Value, values

TEXT = """syntax = "proto3";

package scorestream;

message Score {
  string id = 1;
  Value score = 2;
  optional string decision = 3;
  Source source = 4;
  int64 event_ms = 5;
  string status = 6;
  string model = 7;
  string version = 8;
  string digest = 9;
  string role = 10;
  string region = 11;
  int64 scored_ms = 12;
}

message Source {
  string topic = 1;
  int32 partition = 2;
  int64 offset = 3;
}

message Numbers {
  repeated double numbers = 1;
}

message Named {
  string name = 1;
  repeated double numbers = 2;
}

message NamedNumbers {
  repeated Named outputs = 1;
}

message Value {
  oneof value {
    double number = 1;
    Numbers numbers = 2;
    NamedNumbers named = 3;
  }
}
"""
"""For consumers. `score`: absent where the event expired, a number, the elements of an array row by row, or such by output."""
PATH = b"\0"  # of the first message, in Confluent's header
FIELDS = {
    "Score": "id:string score:.Value decision:string? source:.Source event_ms:int64 status:string model:string version:string "
    "digest:string role:string region:string scored_ms:int64",
    "Source": "topic:string partition:int32 offset:int64",
    "Numbers": "numbers:double*",
    "Named": "name:string numbers:double*",
    "NamedNumbers": "outputs:.Named*",
    "Value": "number:double| numbers:.Numbers| named:.NamedNumbers|",
}
"""The same without protoc: fields in order, `?` with presence, `*` repeated, `|` of the message's oneof."""


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="scorestream/score.proto", package="scorestream", syntax="proto3")
    for name, fields in FIELDS.items():
        message = file.message_type.add(name=name)
        for number, stated in enumerate(fields.split(), start=1):
            field_name, _, type_ = stated.rstrip("?*|").partition(":")
            field = message.field.add(name=field_name, number=number, label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL)
            if stated.endswith("*"):
                field.label = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
            if type_.startswith("."):
                field.type, field.type_name = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE, f".scorestream{type_}"
            else:
                field.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{type_.upper()}")
            if stated[-1] in "?|":
                field.oneof_index = 0
                field.proto3_optional = stated.endswith("?")
                if not message.oneof_decl:
                    message.oneof_decl.add(name="value" if stated.endswith("|") else f"_{field_name}")
    return file


_pool = descriptor_pool.DescriptorPool()
_pool.AddSerializedFile(_file().SerializeToString())
Score: Any = message_factory.GetMessageClass(_pool.FindMessageTypeByName("scorestream.Score"))


class ProtobufRecordEncoder(RecordEncoder):
    """Builds the records of one version; `header` begins each."""

    def __init__(self, header: bytes, **provenance: str) -> None:
        super().__init__(**provenance)
        self._header = header

    def encode(
        self,
        ids: Sequence[str],
        scores: Sequence[bytes],
        decisions: Sequence[str | None],
        places: Sequence[tuple[str, int]],
        offsets: Sequence[int],
        event_ms: Sequence[int],
        status: str,
        scored_ms: int,
    ) -> list[bytes]:
        """See RecordEncoder; `scores` are JSON."""
        tail = Score(status=status, scored_ms=scored_ms, **self.provenance).SerializeToString()
        records = []
        rows = zip(ids, values(scores), decisions, places, offsets, event_ms, strict=True)
        for id_, value, decision, (topic, partition), offset, ms in rows:
            record = Score(id=id_, decision=decision, event_ms=ms)
            record.source.topic, record.source.partition, record.source.offset = topic, partition, offset
            _set(record.score, value)
            records.append(self._header + record.SerializeToString() + tail)
        return records


def _set(score: Any, value: Value) -> None:
    if isinstance(value, float):
        score.number = value
    elif isinstance(value, list):
        score.numbers.numbers[:] = value
        score.numbers.SetInParent()
    elif value is not None:
        for name, numbers in value.items():
            score.named.outputs.add(name=name, numbers=numbers)


def as_json(value: bytes, start: int) -> Any:
    """A record behind a header of `start` bytes as what JSON can say. Raises ValueError where it is none."""
    try:
        record = Score.FromString(value[start:])
    except DecodeError as error:
        raise ValueError(f"no score record in Protobuf: {error}") from error
    found = {field.name: getattr(record, field.name) for field in Score.DESCRIPTOR.fields if not field.message_type}
    source = record.source
    return found | {
        "score": _get(record.score),
        "decision": record.decision if record.HasField("decision") else None,
        "source": {"topic": source.topic, "partition": source.partition, "offset": source.offset},
    }


def _get(score: Any) -> Value:
    match score.WhichOneof("value"):
        case "number":
            return float(score.number)
        case "numbers":
            return list(score.numbers.numbers)
        case "named":
            return {output.name: list(output.numbers) for output in score.named.outputs}
    return None
