"""Status records: the state of each scorer in the compacted topic `<name>.status`, so that no other database is needed.

The key of a status record is the scorer's owner id. A record with an old heartbeat belongs to a scorer that has died.
"""

# The topic also has notices of channel moves, with other keys (see `channel_move_listener.py`). Every principal with Write on
# the topic can write any record. Readers therefore bound the number and size of the records that they keep, and base no
# decision about a process on its record alone. A scorer that waits for a dependency during its start-up writes records with the
# state `waiting`. The last record of a scorer that stops has the state `stopped`.

from typing import Annotated

import msgspec

from model_registry.untrusted_input.json_documents import DocumentDecoder, Int64

HEARTBEAT_SECONDS = 5.0  # between two records of a scorer whose state does not change
STALE_SECONDS = 3 * HEARTBEAT_SECONDS  # the age of a heartbeat from which on readers show the scorer as dead
SILENT_SECONDS = 2 * HEARTBEAT_SECONDS + 1.0  # after this time without a record, a successor treats the scorer as dead
NOTICE = "_channel/"  # the prefix of the keys of notices

RUNNING = "running"
WAITING = "waiting"
STOPPED = "stopped"

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Lag = Annotated[int, msgspec.Meta(ge=-(2**42), le=2**42)]  # the sum over the partitions of a topic fits in 64 bits
Number = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]


class VersionStatus(msgspec.Struct, frozen=True):
    """A version that a scorer serves, and the channel revision that names the version."""

    model: str
    version: str
    digest: str
    revision: Int64


class PartitionStatus(msgspec.Struct, frozen=True):
    """The status of a partition that is assigned to a scorer.

    Attributes:
        lag: the number of unanswered records.
        paused: why the partition is not read; "" if it is read.
    """

    topic: str
    partition: Number
    lag: Lag
    paused: str = ""


class TablePartitionStatus(msgspec.Struct, frozen=True):
    """The state of one partition of a table in a scorer.

    Attributes:
        table: the name of the table.
        partition: the partition of the table's topic.
        rows: the number of rows.
        bytes: the memory that the rows take.
        position: the next offset that the scorer reads.
        end: the last known end of the partition.
        lag_seconds: the time since the position last equalled the end.
        restored: whether all records that existed when the partition was assigned have been read.
    """

    table: str
    partition: Number
    rows: Count
    bytes: Count
    position: Count
    end: Count
    lag_seconds: Seconds
    restored: bool


class ScorerStatus(msgspec.Struct, frozen=True):
    """The value of a status record: the status of one scorer. Times are in Unix ms.

    Attributes:
        scorer: the owner id, `<name>.<replica>`.
        state: RUNNING; WAITING during a start-up that does not proceed; or STOPPED.
        versions: the served versions by role: champion, canary or shadow.
        refused: the versions that the scorer refuses, each with the reason.
        cost: the coefficients (a, b) of the time to score B events, T(B) = a + b B, in seconds.
        counters: totals since the start of the process, by name.
        tag: the channel or tag that the scorer follows (`model.tag`).
        aspired_revision: the newest polled revision of the channel, even if it is refused or still being loaded.
        instance: a random id of the process, which changes at each restart.
        waiting: the dependency that the scorer waits for, with the error; "" if it does not wait.
        delayed: the versions of the channel that cannot be loaded yet, each with the reason, such as a full disk.
        shadow: whether the scorer is a shadow: it has a separate group, writes no answers, and takes no part in rollouts.
        tables: the partitions of tables whose rows the scorer holds.
    """

    scorer: str
    region: str
    state: str
    heartbeat_ms: Count
    started_ms: Count
    pid: Count
    partitions: list[PartitionStatus]
    versions: dict[str, VersionStatus]
    refused: dict[str, str]
    cost: tuple[Seconds, Seconds]
    counters: dict[str, Count]
    tag: str = ""
    aspired_revision: Int64 = 0
    instance: str = ""
    shadow: bool = False
    waiting: str = ""
    delayed: dict[str, str] = msgspec.field(default_factory=dict)
    tables: list[TablePartitionStatus] = msgspec.field(default_factory=list)


_decoder = DocumentDecoder(ScorerStatus)


def notice_key(channel: str) -> str:
    """Return the key of a notice that this channel was moved, that is, has a new revision."""
    return NOTICE + channel


def read(key: bytes | None, value: bytes | None) -> ScorerStatus | None:
    """Parse a record of the status topic as a status record; None if it is not one."""
    # Notices, tombstones and unreadable values are no status records. The key must equal the field `scorer` of the value.
    if not key or key.startswith(NOTICE.encode()):
        return None
    status = parse(value)
    return status if status is not None and status.scorer.encode("utf-8", "replace") == key else None


def parse(value: bytes | None) -> ScorerStatus | None:
    """Parse the value of a status record; None for a tombstone or unreadable bytes."""
    return _decoder.decode_or_none(value)
