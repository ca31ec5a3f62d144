"""The score record in Protobuf. A message is its parts one behind the other, so what is the same in a batch is encoded once."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.message import DecodeError

from scorer.scores.record import Columns, RecordEncoder, Value, values

PATH = b"\0"  # of the first message, in Confluent's header
_described = descriptor_pb2.FileDescriptorSet.FromString(files(__package__).joinpath("score.binpb").read_bytes())
Score: Any = message_factory.GetMessages(_described.file)["scorestream.Score"]
"""Of the descriptor set that protoc has made of `schema.protobuf()`."""


class ProtobufRecordEncoder(RecordEncoder):
    """Builds the records of one version; `header` begins each."""

    plain = False

    def __init__(self, header: bytes, **provenance: str) -> None:
        super().__init__(**provenance)
        self._header = header

    def _encoded(self, columns: Columns, tail: Mapping[str, str | int]) -> list[bytes]:
        last = Score(**tail).SerializeToString()
        records = []
        rows = zip(*columns._replace(scores=values(columns.scores)), strict=True)
        for id_, value, decision, (topic, partition), offset, ms in rows:
            record = Score(id=id_, decision=decision, event_ms=ms)
            record.source.topic, record.source.partition, record.source.offset = topic, partition, offset
            _set(record.score, value)
            records.append(self._header + record.SerializeToString() + last)
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
    source = record.source
    nested = {
        "score": _get(record.score),
        "decision": record.decision if record.HasField("decision") else None,
        "source": {field.name: getattr(source, field.name) for field in source.DESCRIPTOR.fields},
    }
    return {field.name: nested.get(field.name, getattr(record, field.name)) for field in Score.DESCRIPTOR.fields}


def _get(score: Any) -> Value:
    match score.WhichOneof("value"):
        case "number":
            return float(score.number)
        case "numbers":
            return list(score.numbers.numbers)
        case "named":
            return {output.name: list(output.numbers) for output in score.named.outputs}
    return None
