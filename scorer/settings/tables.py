"""The settings of the tables (`tables`): the topics with features by key, and how their rows are joined with events."""

from typing import Annotated, Literal

from pydantic import AfterValidator, ByteSize, Field

from model_registry.package import json_path
from publisher.runtime.configuration import Section, TopicName

TableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,99}$")]
"""The name of a table: the part before the dot in the name of a joined field such as `customers.age`."""


class TableSettings(Section):
    """One table: the topic of its rows, and how the row of an event is found.

    The newest record of a key in the topic is the row of the key.
    """

    topic: TopicName
    """The topic of the table. Its `cleanup.policy` must include `compact`. A record whose value is null deletes the row."""
    format: Literal["json", "avro", "protobuf"] = "json"
    """The format of a row. `avro` and `protobuf` need `schema_registry.url`."""
    key: Annotated[str, AfterValidator(json_path.canonical)] | None = Field(default=None, min_length=1)
    """The path of the row's key in an event (`customer_id`, `after.id`); default: the key of the event's record."""
    scope: Literal["partition", "all"] = "partition"
    """`partition`: a worker holds the rows of the partitions that it reads events from; the table must have as many
    partitions as each input topic, and the same partitioner. `all`: each worker holds all rows."""
    when_behind: Literal["score", "wait"] = "score"
    """What to do with events while the table lags by more than `max_lag_seconds`: score them with the rows that were read, or
    wait."""
    max_lag_seconds: float = Field(default=10.0, ge=1, le=86_400)
    """The lag limit of `when_behind: wait` (s)."""
    max_rows: int = Field(default=10_000_000, ge=1, le=1_000_000_000)
    """The most rows that a worker holds. A worker with more rows ends with an error."""
    max_bytes: ByteSize = Field(default=ByteSize(2 * 1024**3), ge=1_048_576)
    """The most memory that the rows of the table may take in a worker (such as `2GiB`). A worker that needs more ends with an
    error."""
