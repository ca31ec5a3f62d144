"""The meanings of Kafka's error codes: one table of codes per meaning, with a reason for each code.

For example, `error in FENCED` tests whether a KafkaError means that the producer is fenced. No other module interprets an error
code.
"""

# Codes that begin with an underscore are librdkafka's, the others are the broker's.

from confluent_kafka import KafkaError, KafkaException


class Codes(dict[int, str]):
    """The error codes that have one meaning, with a reason for each code.

    `error in codes` tests whether the code of a KafkaError is one of them.
    """

    def __init__(self, *reasons: tuple[int, str]) -> None:
        super().__init__(reasons)

    def __contains__(self, error: object) -> bool:
        return super().__contains__(error.code() if isinstance(error, KafkaError) else error)

    def reason(self, error: KafkaError) -> str | None:
        """Return the reason for the code of this error; None if the table does not contain the code."""
        return self.get(error.code())


FENCED = Codes(
    (KafkaError._FENCED, "the client was fenced before"),
    (KafkaError.PRODUCER_FENCED, "a newer producer has the transactional.id"),
    (KafkaError.INVALID_PRODUCER_EPOCH, "a newer producer has the transactional.id (older brokers)"),
)
"""Another producer has taken over the transactional.id."""
EVICTED = Codes(
    (KafkaError.ILLEGAL_GENERATION, "the group has rebalanced"),
    (KafkaError.UNKNOWN_MEMBER_ID, "the group has removed this member"),
    (KafkaError.STALE_MEMBER_EPOCH, "the group has rebalanced (KIP-848)"),
    (KafkaError.FENCED_MEMBER_EPOCH, "the group has removed this member (KIP-848)"),
)
"""The group rejects a commit of offsets after a rebalance. The producer remains usable."""
LOST = Codes((KafkaError._FATAL, "the client repeats its fatal error"))
"""The client has failed permanently, and must be replaced."""

REFUSED = Codes(
    (KafkaError.TOPIC_AUTHORIZATION_FAILED, "topic"),
    (KafkaError.GROUP_AUTHORIZATION_FAILED, "group"),
    (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional-id"),
    (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "cluster"),
)
"""A right is missing. The reason is the kind of the resource, as in `Right.kind`."""
WRONG_LOGIN = Codes((KafkaError._AUTHENTICATION, "user, password or mechanism"))
NO_TRUST = Codes((KafkaError._SSL, "a certificate, or no TLS at all"))
UNKNOWN_CLIENT = Codes(*WRONG_LOGIN.items(), *NO_TRUST.items())
"""The broker rejects the client, or the client does not trust the broker. librdkafka retries for ever."""

UNFIT_RECORD = Codes(
    (KafkaError.MSG_SIZE_TOO_LARGE, "too-large"),
    (KafkaError.RECORD_LIST_TOO_LARGE, "too-large"),
    (KafkaError.INVALID_RECORD, "invalid-record"),
    (KafkaError.INVALID_TIMESTAMP, "invalid-timestamp"),
)
"""The broker never accepts the record. The reason is written to dead letters."""
UNFIT_NEIGHBOUR = Codes((KafkaError._INVALID_DIFFERENT_RECORD, "the broker rejected another record of the batch"))
NOT_WRITTEN = Codes(
    *UNFIT_RECORD.items(),
    *UNFIT_NEIGHBOUR.items(),
    *REFUSED.items(),
    (KafkaError.UNKNOWN_TOPIC_OR_PART, "the topic does not exist"),
    (KafkaError._UNKNOWN_TOPIC, "the client does not know the topic"),
    (KafkaError._UNKNOWN_PARTITION, "the client does not know the partition"),
    (KafkaError._PURGE_QUEUE, "the record was purged before it was sent"),
)
"""The record is certainly not in the log. After an error that is not in this table, it may be in the log."""
BEHIND_UNFIT = Codes(
    (KafkaError._STATE, "the transaction has failed already"),
    (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "the rejected request before it left a gap"),
)
"""The errors of the client for records and requests that follow a rejected record."""

COORDINATOR_UNAVAILABLE = Codes(
    (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, "the coordinator reads its log"),
    (KafkaError.COORDINATOR_NOT_AVAILABLE, "the coordinator is being elected"),
    (KafkaError.NOT_COORDINATOR, "the coordinator has moved"),
    (KafkaError._TIMED_OUT, "no answer yet"),
    (KafkaError._TRANSPORT, "the connection was closed"),
)
INIT_LATER = Codes(
    (KafkaError.CONCURRENT_TRANSACTIONS, "the end of the last transaction is being written"),
    *COORDINATOR_UNAVAILABLE.items(),
    (KafkaError._STATE, "the previous call has not finished in the client"),
)
"""`init_transactions` may succeed if it is repeated."""
ANSWERED_LATER = Codes(
    (KafkaError.FENCED_LEADER_EPOCH, "the client's metadata is old"),
    (KafkaError.UNKNOWN_LEADER_EPOCH, "the broker's metadata is old"),
    (KafkaError.NOT_LEADER_FOR_PARTITION, "the leader has moved"),
    (KafkaError.LEADER_NOT_AVAILABLE, "a leader is being elected"),
    *COORDINATOR_UNAVAILABLE.items(),
    (KafkaError.REQUEST_TIMED_OUT, "the broker is busy"),
    (KafkaError.UNSTABLE_OFFSET_COMMIT, "a transaction with this position is not decided"),
    (KafkaError._WAIT_COORD, "the client is finding the coordinator"),
)
"""A request for offsets may succeed if it is repeated."""
NO_CONNECTION = Codes((KafkaError._ALL_BROKERS_DOWN, "no broker is connected"))
NO_ANSWER = Codes((KafkaError._TIMED_OUT, "the broker does not answer in time"))
PASSING = Codes(*NO_CONNECTION.items(), *NO_ANSWER.items(), (KafkaError._TRANSPORT, "the connection was closed"))
"""Connection errors, which the client retries by itself."""
NOT_NOW = Codes((KafkaError._STATE, "the partition is not fetched yet, or the transaction has failed"))

END = Codes((KafkaError._PARTITION_EOF, "the end of the partition was reached"))
OUT_OF_RANGE = Codes((KafkaError._AUTO_OFFSET_RESET, "the log does not hold the position, and `auto.offset.reset` is error"))
UNDECODABLE = Codes(
    (KafkaError._BAD_COMPRESSION, "it cannot be decompressed, or its records do not fit into receive.message.max.bytes"),
    (KafkaError._NOT_IMPLEMENTED, "the client does not know its codec or its version"),
    (KafkaError.MSG_SIZE_TOO_LARGE, "it is larger than the largest fetch"),
)
"""The client cannot read a batch, and repeats the same fetch for ever."""
UNDECODABLE_HINT = (
    "a batch is damaged or expands beyond receive.message.max.bytes: start after this batch, or delete the records up to it"
)
ABSENT = Codes(
    (KafkaError.UNKNOWN_TOPIC_OR_PART, "no topic of this name"),
    (KafkaError.UNKNOWN_TOPIC_ID, "no topic of this id"),
    (KafkaError._UNKNOWN_TOPIC, "the client does not know the topic"),
    (KafkaError.TOPIC_EXCEPTION, "the name is not valid"),
)
CREATED_ALREADY = Codes((KafkaError.TOPIC_ALREADY_EXISTS, "another process has created it"))
GROWN_ALREADY = Codes((KafkaError.INVALID_PARTITIONS, "another process has added the partitions"))
LONG_TRANSACTION = Codes(
    (KafkaError.INVALID_TRANSACTION_TIMEOUT, "the broker's transaction.max.timeout.ms is below the client's timeout")
)
LIMITED = Codes(
    (KafkaError.POLICY_VIOLATION, "the broker limits partitions, or has a policy of its own for topics"),
    (KafkaError.INVALID_PARTITIONS, "the broker rejects this number of partitions"),
    (KafkaError.INVALID_REPLICATION_FACTOR, "the cluster has fewer brokers than default.replication.factor"),
    (KafkaError.INVALID_CONFIG, "the broker rejects the topic's configuration"),
)
"""The broker does not create a topic as requested, for a reason other than rights."""
NO_SUCH_GROUP = Codes((KafkaError.GROUP_ID_NOT_FOUND, "the group has no members and no committed offsets"))


def no_answer(message: str) -> KafkaException:
    """Return a KafkaException with a time-out error, for a caller that stops waiting before the client does."""
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, message))


def no_leader(message: str) -> KafkaException:
    """Return a KafkaException with the error "leader not available"."""
    # For a broker's answer that lacks values that only the leader of a partition can return.
    return KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, message))
