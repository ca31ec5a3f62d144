"""Connect a command to a broker, or fail within seconds with the reason and the remedy in one line each.

librdkafka retries for ever with a wrong password or an untrusted certificate, so each command first connects with `connect`.
"""

import time

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from publisher.errors import Fatal
from publisher.kafka import clients as kafka
from publisher.kafka import diagnose_connection
from publisher.kafka.clients import ErrorWatch, KafkaSettings
from publisher.kafka.error_codes import NO_TRUST, WRONG_LOGIN

ANSWER_SECONDS = 10.0
FIRST_TIMEOUT_SECONDS = 0.25


def connect(settings: KafkaSettings, client_id: str, seconds: float = ANSWER_SECONDS) -> AdminClient:
    """Return an administrative client that has received an answer from a broker.

    Raises:
        Fatal: with exit code 2 if the client rejects the settings. With 3 if the broker rejects the client, or the client does
            not trust the broker. With 4 if no broker answers within `seconds`.
    """
    watch = ErrorWatch()
    admin = kafka.admin(settings, client_id, watch)
    deadline = time.monotonic() + seconds
    timeout = FIRST_TIMEOUT_SECONDS
    last: KafkaError | None = None
    while True:
        try:
            admin.list_topics(timeout=min(timeout, max(FIRST_TIMEOUT_SECONDS, deadline - time.monotonic())))
        except KafkaException as error:
            failure: KafkaError = error.args[0]
        else:
            return admin
        admin.poll(0)
        if watch.fatal is not None:
            raise refused(settings, watch.fatal)
        if watch.last is not last:
            last = watch.last
            if (answer := diagnose_connection.diagnose(settings)) is not None and answer.certain:
                raise Fatal(answer.problem, answer.hint, 3)
        if time.monotonic() > deadline:
            raise _unreachable(settings, watch.last or failure)
        timeout *= 2  # the metadata of a large cluster takes longer


def refused(settings: KafkaSettings, error: KafkaError) -> Fatal:
    """Return the Fatal for a Kafka error that a retry does not cure, such as a wrong password or an untrusted certificate."""
    security = settings.security
    section = f"{settings.section}.security"
    if error in WRONG_LOGIN:
        password = f"its password ({security.password_file or 'from the environment'})"
        hint = f"check {section}.username ({security.username}), {password} and {section}.mechanism"
        return Fatal(f"the broker refuses the log-in: {error.str()}", f"{hint} ({security.mechanism})", 3)
    if error in NO_TRUST and (answer := diagnose_connection.diagnose(settings)):
        return Fatal(answer.problem, answer.hint, 3)
    return Fatal(f"the broker rejects this client: {error.str()}", f"check {section}", 3)


def _unreachable(settings: KafkaSettings, error: KafkaError) -> Fatal:
    if answer := diagnose_connection.diagnose(settings):
        return Fatal(f"no Kafka broker answers: {answer.problem}", answer.hint)
    return Fatal(
        f"no Kafka broker answers at {settings.bootstrap_servers}: {error.str()}",
        f"check {settings.section}.bootstrap_servers, and that the broker runs",
    )
