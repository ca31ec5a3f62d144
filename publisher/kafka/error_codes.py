"""What the codes of Kafka's errors mean: one table, and a word why for each group."""

from confluent_kafka import KafkaError

FENCED_CODES = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
MEMBERSHIP_CODES = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_MEMBER_EPOCH,
    }
)
"""The group's refusals after a rebalance: nothing is wrong with any producer."""
REFUSED_CODES = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""The broker's answers that say that a right is missing."""
RECORD_CODES = {
    KafkaError.MSG_SIZE_TOO_LARGE: "too-large",
    KafkaError.RECORD_LIST_TOO_LARGE: "too-large",
    KafkaError.INVALID_RECORD: "invalid-record",
    KafkaError.INVALID_TIMESTAMP: "invalid-timestamp",
}
"""The broker's answers that are about a record, and a word for each: no repetition will help."""
INIT_REPEATED_CODES = frozenset(
    {
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._STATE,
    }
)
