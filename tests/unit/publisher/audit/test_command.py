"""The audit command over topics: its input, its output and its exit codes."""

import json
import socket
import uuid

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner, Result

from publisher import cli
from tests.unit.publisher.audit.conftest import Headers, Write

NO_HEADERS: Headers = []


class Topics:
    """One input topic, its scores, dead letters and swaps, on the mock cluster."""

    def __init__(self, bootstrap_servers: str, write: Write) -> None:
        self.name = f"flights-{uuid.uuid4().hex[:8]}"
        self.bootstrap_servers = bootstrap_servers
        self._write = write

    def inputs(self, partition: int, count: int) -> None:
        self._write(self.name, partition, [(b"{}", NO_HEADERS)] * count)

    def score(self, partition: int, offset: int, **changes: object) -> None:
        record = {
            "id": f"{partition}-{offset}",
            "score": 0.9,
            "status": "scored",
            "digest": "sha256:a",
            "version": "1.0.0",
            "source": {"topic": self.name, "partition": partition, "offset": offset},
        }
        self.raw_score(json.dumps(record | changes).encode(), partition)

    def raw_score(self, value: bytes | None, partition: int = 0) -> None:
        self._write(f"{self.name}.scores", partition, [(value, NO_HEADERS)])

    def dead(self, *sources: bytes) -> None:
        self._write(f"{self.name}.dead", 0, [(b"?", [("dead.source", source) for source in sources])])

    def swap(self, **record: object) -> None:
        document = {"topic": self.name, "partition": 0, "cut_over_offset": 0, "revision": 1, "digest": "sha256:a"}
        self._write(f"{self.name}.swaps", 0, [(json.dumps(document | record).encode(), NO_HEADERS)])

    def commit(self, group: str, partition: int, offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": group})
        consumer.commit(offsets=[TopicPartition(self.name, partition, offset)], asynchronous=False)
        consumer.close()

    def audit(self, *options: str) -> Result:
        arguments = ["audit", "--bootstrap-servers", self.bootstrap_servers, "--input", self.name]
        return CliRunner().invoke(cli.app, [*arguments, "--output", f"{self.name}.scores", *options])

    def report(self, *kinds: str, group: str | None = None) -> dict[str, object]:
        options = [part for kind in kinds for part in (f"--{kind}", f"{self.name}.{kind}")]
        result = self.audit("--json", *options, *(("--group", group) if group else ()))
        report: dict[str, object] = json.loads(result.stdout)
        assert result.exit_code == (0 if report["clean"] else 1)
        return report


@pytest.fixture
def topics(bootstrap_servers: str, write: Write, monkeypatch: pytest.MonkeyPatch) -> Topics:
    """Topics have no ids: the mock cluster never answers this request, and each audit would wait for the answer."""
    monkeypatch.setattr(AdminClient, "describe_topics", lambda *_arguments, **_options: {})
    return Topics(bootstrap_servers, write)


def test_a_clean_run(topics: Topics) -> None:
    for partition in (0, 1):
        topics.inputs(partition, 4)
        for offset in (0, 1, 2):
            topics.score(partition, offset, status="expired" if offset == 1 else "scored", id="same" if offset else "other")
        topics.dead(f"eu/{topics.name}/{partition}/3".encode())
    report = topics.report("dead")
    assert report["clean"]
    assert (report["events"], report["scored"], report["expired"], report["dead_lettered"]) == (8, 4, 2, 2)
    assert report["repeated_ids"] == 4


def test_findings_are_reported_with_their_positions(topics: Topics) -> None:
    topics.inputs(0, 5)
    for offset in (0, 2, 1, 1, 9):
        topics.score(0, offset)
    report = topics.report()
    counts = {"missing": 2, "duplicates": 1, "phantoms": 1, "out_of_order": 2}
    assert {name: report[name] for name in counts} == counts
    assert report["examples"] == {
        "missing": [f"{topics.name}/0/3", f"{topics.name}/0/4"],
        "duplicates": [f"{topics.name}/0/1"],
        "phantoms": [f"{topics.name}/0/9"],
        "out_of_order": [f"{topics.name}/0/1", f"{topics.name}/0/1"],
    }
    table = topics.audit()
    assert table.exit_code == 1
    assert f"{topics.name}/0/9" in table.stdout
    assert "not clean: missing 2, duplicates 1, phantoms 1, out_of_order 2" in table.stderr


def test_uncommitted_events_are_pending_and_their_answers_uncommitted(topics: Topics) -> None:
    topics.inputs(0, 6)
    topics.inputs(1, 1)
    for offset in (0, 1, 4):
        topics.score(0, offset)
    topics.commit(group := f"{topics.name}-scorers", 0, 3)
    report = topics.report(group=group)
    assert (report["missing"], report["pending"], report["uncommitted"]) == (1, 3, 1)
    assert report["examples"] == {"missing": [f"{topics.name}/0/2"], "uncommitted": [f"{topics.name}/0/4"]}


def test_a_rollback_with_swap_records_is_no_regression(topics: Topics) -> None:
    topics.inputs(0, 3)
    for offset, digest in enumerate("aba"):
        topics.score(0, offset, digest=f"sha256:{digest}")
        topics.swap(cut_over_offset=offset, revision=offset + 1, digest=f"sha256:{digest}")
    assert topics.report()["version_regressions"] == 1
    assert topics.report("swaps")["clean"]


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\xff",
        b"[]",
        b'{"id": "x", "status": "scored", "digest": "d"}',
        b'{"id": "x", "status": "guessed", "digest": "d", "source": {"topic": "t", "partition": 0, "offset": 0}}',
        b'{"id": "x", "status": "scored", "digest": "d", "source": {"topic": "t", "partition": -1, "offset": 0}}',
        b'{"id": "x", "status": "scored", "digest": "d", "source": {"topic": "t", "partition": 0, "offset": 1e30}}',
    ],
)
def test_a_score_without_a_valid_source_is_unreadable(topics: Topics, value: bytes | None) -> None:
    topics.inputs(0, 1)
    topics.score(0, 0)
    topics.raw_score(value)
    report = topics.report()
    assert report["examples"] == {"unreadable": [f"{topics.name}.scores/0/1"]}


def test_unreadable_dead_letters_and_swaps(topics: Topics) -> None:
    topics.inputs(0, 1)
    topics.score(0, 0)
    topics.dead()
    topics.dead(b"eu/flights/0")
    topics.swap(revision=-1)
    report = topics.report("dead", "swaps")
    assert report["examples"] == {
        "unreadable": [f"{topics.name}.swaps/0/0", f"{topics.name}.dead/0/0", f"{topics.name}.dead/0/1"]
    }


def test_the_last_source_of_a_dead_letter_counts(topics: Topics) -> None:
    topics.inputs(0, 2)
    topics.score(0, 0)
    topics.dead(f"eu/{topics.name}/0/0".encode(), f"eu/{topics.name}/0/1".encode())
    assert topics.report("dead")["clean"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--from", "yesterday"], "'yesterday' is not a valid time"),
        (["--from", "2025-01-01", "--to", "2025-01-01T00:00:00Z"], "is not before"),
        (["-X", "nothing"], "-X number 1 is not key=value"),
        (["-X", "no.such.property=1"], "no.such.property"),
        (["--no-such-option"], "No such option"),
        (["--dead", "nowhere"], "no topic 'nowhere'"),
        (["--dead", "{name}.score"], "did you mean '{name}.scores'?"),
        (["--group", "absent"], "group 'absent' has no committed offsets"),
    ],
)
def test_errors_have_their_exit_codes(
    topics: Topics, options: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    topics.inputs(0, 1)
    topics.score(0, 0)
    arguments = ["--bootstrap-servers", topics.bootstrap_servers, "--input", topics.name, "--output", f"{topics.name}.scores"]
    assert ended(monkeypatch, [*arguments, *(option.format(name=topics.name) for option in options)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message.format(name=topics.name) in printed.err


def test_an_unreachable_broker_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))  # not listening: refused
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        arguments = ["--bootstrap-servers", address, "--input", "a", "--output", "b", "--timeout", "0.5"]
        assert ended(monkeypatch, arguments) == 4
    assert f"error: no Kafka broker answers at {address}" in capsys.readouterr().err


def ended(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> object:
    monkeypatch.setattr("sys.argv", ["publisher", "audit", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code
