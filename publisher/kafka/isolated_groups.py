"""Describe consumer groups in short-lived child processes, because librdkafka may abort a process that describes a group.

Long-lived processes must use `IsolatedGroups` instead of an administrative client.
"""

# The abort happens if a query is pending while the coordinator fails or returns (librdkafka #4605). The client's older call
# `list_groups` is no alternative: it sends requests to every broker instead of the coordinator, fails if one broker does not
# answer, and does not return the client's rights.

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from publisher.kafka import clients as kafka
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.error_codes import no_answer
from publisher.kafka.group_query_program import DescribedMember, GroupDescription

PROGRAM = (sys.executable, "-P", "-m", "publisher.kafka.group_query_program")  # -P: no modules of the working directory
START_SECONDS = 5.0  # from the start of the process to its request: 0.1 s, or several seconds on an overloaded machine


class IsolatedGroups:
    """Describes consumer groups of one cluster. Each query runs in a child process with a client of its own.

    Args:
        settings: the settings of the connection.
        client_id: the client id.
        program: the command line of the program that the child process runs. A file descriptor is appended as last argument:
            the read end of a pipe. The program reads end-of-file from it when this process dies.
        start_seconds: how long a child process may take to start, in addition to the time limit of its query.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        client_id: str,
        program: Sequence[str] = PROGRAM,
        start_seconds: float = START_SECONDS,
    ) -> None:
        self._settings = settings
        self._client_id = client_id
        self._program = program
        self._start_seconds = start_seconds

    def describe(self, group: str, seconds: float, *, rights: bool) -> GroupDescription:
        """Describe a consumer group in a child process.

        Args:
            group: the name of the group.
            seconds: how long to wait for the answer.
            rights: whether to request the operations that the client may perform on the group.

        Raises:
            KafkaException: if the coordinator does not answer or rejects the request, or if the process dies.
            Fatal: if a file with a password cannot be used.
        """
        limit = seconds + self._start_seconds
        request = {
            "properties": kafka.client(self._settings, self._client_id),
            "group": group,
            "seconds": seconds,
            "rights": rights,
            "limit": limit,
        }
        answer = self._run(json.dumps(request).encode(), limit)
        if "error" in answer:
            raise KafkaException(KafkaError(*answer["error"]))
        return GroupDescription([DescribedMember(*member) for member in answer["members"]], answer["operations"])

    def _run(self, request: bytes, limit: float) -> dict[str, Any]:
        """Run the program with this request for at most `limit` seconds, and return its answer. Raises KafkaException."""
        try:
            with _lifeline() as lifeline:
                process = subprocess.run(
                    [*self._program, str(lifeline)],
                    input=request,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,  # librdkafka's assertion; its connection errors are logged by other clients
                    timeout=limit,
                    pass_fds=(lifeline,),
                    check=True,
                )
            return dict(json.loads(process.stdout))
        except subprocess.CalledProcessError as error:
            raise no_answer(f"the process that queries the group ended with code {error.returncode}") from None
        except subprocess.TimeoutExpired:
            raise no_answer(f"the process that queries the group did not answer within {limit:.0f} s") from None
        except (OSError, ValueError) as error:
            raise no_answer(f"the process that queries the group failed: {error}") from None


@contextlib.contextmanager
def _lifeline() -> Iterator[int]:
    """Yield the read end of a pipe. The pipe reaches its end when this process dies or the `with` block ends."""
    reader, writer = os.pipe()
    try:
        yield reader
    finally:
        os.close(writer)
        os.close(reader)
