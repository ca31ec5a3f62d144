"""The child process that describes a group: its results, its errors and its end."""

import os
import subprocess
import sys
import time
from unittest.mock import create_autospec

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from publisher.errors import NotAllowed
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.group_query_program import DescribedMember
from publisher.kafka.groups import GroupMember, check_right_to_join, described, member_ids
from publisher.kafka.isolated_groups import PROGRAM, IsolatedGroups
from publisher.kafka.security import SecuritySettings

SETTINGS = KafkaSettings(bootstrap_servers="127.0.0.1:1")
READ = 3  # the code of the operation in Kafka's protocol
DESCRIBE = 8
ENOUGH_SECONDS = 60.0


def script(code: str, *, settings: KafkaSettings = SETTINGS, start_seconds: float = ENOUGH_SECONDS) -> IsolatedGroups:
    """Return groups whose queries run this Python code. `request` is the request; `answer` is printed as JSON."""
    program = f"import json, os, sys, time; request = json.load(sys.stdin); {code}; print(json.dumps(answer))"
    return IsolatedGroups(settings, "c", (sys.executable, "-c", program), start_seconds)


def answering(members: list[DescribedMember], operations: tuple[int, ...] = ()) -> IsolatedGroups:
    return script(f"answer = {{'members': {[list(member) for member in members]}, 'operations': {list(operations)}}}")


def test_the_members_of_the_answer_are_returned() -> None:
    source = answering([DescribedMember("id 2", "n.b", "/h", 1), DescribedMember("id 1", "n.a", "/h", 2)])
    assert described(source, "n") == [GroupMember("n.a", "/h", 2), GroupMember("n.b", "/h", 1)]
    assert member_ids(source, "n", "n.b") == {"id 2"}


def test_the_error_of_the_coordinator_is_raised() -> None:
    with pytest.raises(KafkaException) as raised:
        described(script(f"answer = {{'error': [{KafkaError.COORDINATOR_NOT_AVAILABLE}, 'not yet']}}"), "n")
    assert raised.value.args[0].code() == KafkaError.COORDINATOR_NOT_AVAILABLE
    assert raised.value.args[0].str() == "not yet"


def test_a_group_that_does_not_exist_has_no_members() -> None:
    assert described(script(f"answer = {{'error': [{KafkaError.GROUP_ID_NOT_FOUND}, 'none']}}"), "n") == []


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("os.kill(os.getpid(), 6); answer = 0", "ended with code -6"),
        ("sys.exit(1); answer = 0", "ended with code 1"),
        ("print('no JSON'); answer = {}", "failed"),
    ],
)
def test_a_process_that_fails_is_a_coordinator_that_does_not_answer(code: str, message: str) -> None:
    with pytest.raises(KafkaException, match=message) as raised:
        described(script(code), "n")
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT


def test_a_program_that_cannot_be_started_is_a_coordinator_that_does_not_answer() -> None:
    with pytest.raises(KafkaException, match="failed"):
        described(IsolatedGroups(SETTINGS, "c", ("/nowhere/program",)), "n")


def test_a_process_that_does_not_answer_is_killed_after_its_time_limit() -> None:
    began = time.monotonic()
    with pytest.raises(KafkaException, match="did not answer within"):
        described(script("time.sleep(600); answer = 0", start_seconds=0.3), "n", 0.2)
    assert time.monotonic() - began < ENOUGH_SECONDS


def test_the_password_is_sent_over_the_pipe_and_is_not_on_the_command_line() -> None:
    security = SecuritySettings(protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="u", password="hunter2")  # type: ignore[arg-type]
    settings = KafkaSettings(bootstrap_servers="b:1", security=security)
    code = "answer = {'members': [[request['properties']['sasl.password'], ' '.join(sys.argv), '/h', 0]], 'operations': []}"
    (member,) = script(code, settings=settings).describe("n", 1.0, rights=False).members
    assert member.member_id == "hunter2"
    assert "hunter2" not in member.client_id


def test_a_missing_right_to_join_is_raised_and_an_aborted_query_is_not_a_missing_right() -> None:
    check_right_to_join(answering([], (READ, DESCRIBE)), SETTINGS, "n")
    check_right_to_join(script("os.kill(os.getpid(), 6); answer = 0"), SETTINGS, "n")
    with pytest.raises(NotAllowed):
        check_right_to_join(answering([], (DESCRIBE,)), SETTINGS, "n")
    with pytest.raises(NotAllowed):
        check_right_to_join(script(f"answer = {{'error': [{KafkaError.GROUP_AUTHORIZATION_FAILED}, 'no']}}"), SETTINGS, "n")


def test_a_short_command_describes_a_group_without_a_process() -> None:
    admin = create_autospec(AdminClient, instance=True)
    admin.describe_consumer_groups.return_value["n"].result.side_effect = KafkaException(KafkaError(KafkaError._TRANSPORT))
    with pytest.raises(KafkaException):
        described(admin, "n")


def test_the_program_reports_the_error_of_its_client() -> None:
    with pytest.raises(KafkaException) as raised:
        IsolatedGroups(SETTINGS, "c", start_seconds=ENOUGH_SECONDS).describe("n", 0.5, rights=True)
    assert "process" not in raised.value.args[0].str(), "the process has answered"


def test_the_program_ends_when_its_parent_ends() -> None:
    reader, writer = os.pipe()
    with subprocess.Popen([*PROGRAM, str(reader)], stdin=subprocess.PIPE, pass_fds=(reader,)) as process:
        assert process.poll() is None
        os.close(writer)
        assert process.wait(ENOUGH_SECONDS) == 1
    os.close(reader)
