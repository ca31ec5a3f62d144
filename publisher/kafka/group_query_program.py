"""The group query: a program that describes one consumer group for its parent process, and may be aborted by librdkafka.

`isolated_groups.py` starts the program. The program reads the properties of its client, which may contain passwords, from
standard input.
"""

# An assertion of librdkafka aborts a process whose query of a group is pending while the coordinator fails or returns
# (librdkafka #4605). The program imports little, because a new process runs it for each query.

import json
import os
import resource
import signal
import sys
import threading
from typing import Any, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient


class DescribedMember(NamedTuple):
    """A member of a consumer group. `partitions` is the number of partitions that are assigned to it."""

    member_id: str
    client_id: str
    host: str
    partitions: int


class GroupDescription(NamedTuple):
    """The description of a consumer group.

    Attributes:
        members: the members.
        operations: the codes of the operations that the client may perform on the group; empty if they are not known.
    """

    members: list[DescribedMember]
    operations: list[int]


def describe(admin: AdminClient, group: str, seconds: float, *, rights: bool) -> GroupDescription:
    """Describe a consumer group.

    The query runs in the calling process, which librdkafka may abort.

    Args:
        admin: the client.
        group: the name of the group.
        seconds: how long to wait for the answer.
        rights: whether to request the operations that the client may perform on the group.

    Raises:
        KafkaException: if the coordinator does not answer, or rejects the request.
    """
    answers = admin.describe_consumer_groups([group], include_authorized_operations=rights, request_timeout=seconds)
    description = answers[group].result()
    members = [
        DescribedMember(m.member_id, m.client_id, m.host, len((m.assignment and m.assignment.topic_partitions) or ()))
        for m in description.members
    ]
    return GroupDescription(members, [operation.value for operation in description.authorized_operations or ()])


def main() -> None:
    """Read one group query from standard input, and write its answer to standard output.

    The command-line argument is the descriptor of a pipe that the parent keeps open. This process ends when the parent ends.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.Thread(target=_end_with_parent, args=(int(sys.argv[1]),), daemon=True).start()
    request: dict[str, Any] = json.load(sys.stdin)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, request["limit"])
    try:
        description = describe(
            AdminClient(request["properties"]), request["group"], request["seconds"], rights=request["rights"]
        )
        answer: dict[str, Any] = {"members": description.members, "operations": description.operations}
    except KafkaException as exception:
        error = exception.args[0]
        answer = {"error": [error.code(), error.str()]}
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)  # without closing the client, which may wait for its broker


def _end_with_parent(lifeline: int) -> None:
    """End this process when the pipe `lifeline` reaches its end."""
    os.read(lifeline, 1)
    os._exit(1)


if __name__ == "__main__":
    main()
