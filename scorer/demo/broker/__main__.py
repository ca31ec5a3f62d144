"""`python -m scorer.demo.broker`: run a broker and write the archive of the Java classes that the broker loads."""

import os
import signal
import sys
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from scorer.demo.broker.class_data_sharing import archive_path
from scorer.demo.broker.embedded import EmbeddedBroker
from scorer.demo.broker.jars import classpath

TOPIC = "recorded"
TRANSACTIONS = 20
RESPONSE_SECONDS = 60.0


def record_archive(path: Path) -> None:
    """Run a broker, and write the archive of the Java classes that the broker loads.

    Raises:
        BrokerUnavailable: If the broker does not start.
        OSError: If Java wrote no archive.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}")
    try:
        with EmbeddedBroker(record=temporary) as broker:
            use_broker(broker.bootstrap_servers)
            os.kill(broker.pid, signal.SIGTERM)
            broker.wait()
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def use_broker(servers: str) -> None:
    """Create a topic and write records in transactions, so that Java loads the classes that most users need."""
    connection: dict[str, str | int | float | bool] = {"bootstrap.servers": servers, "log_level": 0}
    admin = AdminClient(connection)
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(RESPONSE_SECONDS)
    producer = Producer({**connection, "transactional.id": TOPIC})
    producer.init_transactions(RESPONSE_SECONDS)
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        producer.produce(TOPIC, b"%d" % number)
        producer.commit_transaction(RESPONSE_SECONDS)


def main() -> int:
    """Write the archive unless its file exists, and return the exit code."""
    path = archive_path(classpath())
    if not path.is_file():
        record_archive(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
