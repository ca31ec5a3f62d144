"""Read the topic `<name>.runs` to its end."""

import logging
import time

from confluent_kafka import OFFSET_BEGINNING

from model_registry.untrusted_input.json_documents import UnreadableDocument
from publisher.errors import USAGE, Fatal
from publisher.kafka import acls
from publisher.kafka.skipped_records import SkippedRecords
from publisher.kafka.topic_follower import TopicFollower
from scorer.console.training.run_history import RecordedRun, RunHistory
from scorer.console.training.run_records import decode_run_record
from scorer.settings import Settings

SUGGESTED = 10  # runs that an error message names
log = logging.getLogger(__name__)


def read_history(settings: Settings) -> RunHistory:
    """Return all runs of the topic. Unreadable records are skipped and logged.

    Raises Fatal: exit code 2 if the topic does not exist, 3 if the user may not read it, 4 if the broker does not answer.
    """
    history = RunHistory()
    skipped = SkippedRecords(log)
    topic = settings.runs_topic
    follower = TopicFollower(settings.kafka, f"{settings.name}.training", acls.to_read(topic), [topic])
    try:
        follower.begin(OFFSET_BEGINNING)
        for message in follower.to_end():
            value = message.value()
            if value is None:
                continue  # a deleted record
            try:
                record = decode_run_record(value)
            except UnreadableDocument as error:
                skipped.skip(topic, message.partition() or 0, message.offset() or 0, error)
                continue
            history.add(record, len(value), message.timestamp()[1] / 1_000, time.time())
    finally:
        follower.close()
    return history


def find_run(history: RunHistory, name: str | None, topic: str, step: str = "") -> RecordedRun:
    """Return the newest run that has completed `step`. Raises Fatal (exit code 2) if there is none.

    `name` is the key, the id or the version of the run; None accepts any run. With an empty `step`, the run need not have
    completed a step. `topic` is only used in the error message.
    """
    matching = [run for run in history.find(name) if not step or ((done := run.steps.get(step)) and done.seconds is not None)]
    if matching:
        return matching[0]
    names = ", ".join(run.version or run.key for run in history.newest_first()[:SUGGESTED]) or "none"
    raise Fatal(f"no run {name!r} on {topic}" if name else f"no run on {topic}", f"runs: {names}", USAGE)
