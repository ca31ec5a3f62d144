"""`python -m scorer.demo.broker.class_data_sharing`: use a broker and keep what Java has loaded (see `archive.py`)."""

import os
import signal
import sys
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from scorer.demo.broker import archive
from scorer.demo.broker.embedded import EmbeddedBroker
from scorer.demo.broker.jars import classpath

TOPIC = "recorded"
TRANSACTIONS = 20
ANSWER_SECONDS = 60.0


def record(path: Path) -> None:
    """Write an archive. Raises BrokerUnavailable, and OSError where Java wrote none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_suffix(f".{os.getpid()}")
    try:
        with EmbeddedBroker(record=written) as broker:
            use(broker.bootstrap_servers)
            os.kill(broker.pid, signal.SIGTERM)
            broker.wait()
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)


def use(servers: str) -> None:
    """What most who start a broker do with it: a topic, and records in transactions."""
    known: dict[str, str | int | float | bool] = {"bootstrap.servers": servers, "log_level": 0}
    admin = AdminClient(known)
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(ANSWER_SECONDS)
    producer = Producer({**known, "transactional.id": TOPIC})
    producer.init_transactions(ANSWER_SECONDS)
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        producer.produce(TOPIC, b"%d" % number)
        producer.commit_transaction(ANSWER_SECONDS)


def main() -> int:
    path = archive.place(classpath())
    if not path.is_file():
        record(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
