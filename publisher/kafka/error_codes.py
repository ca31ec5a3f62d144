"""The meanings of Kafka's error codes: one table per meaning, with a reason for each code. Use `error in FENCED`.

No other module reads a code. Codes that begin with an underscore are librdkafka's, the others are the broker's.
"""

from confluent_kafka import KafkaError, KafkaException


class Codes(dict[int, str]):
    """Codes of one meaning, each with its reason. An error is contained if its code is."""

    def __init__(self, *told: tuple[int, str]) -> None:
        super().__init__(told)

    def __contains__(self, error: object) -> bool:
        return super().__contains__(error.code() if isinstance(error, KafkaError) else error)

    def why(self, error: KafkaError) -> str | None:
        """Return the reason of this error's code; None if it has another meaning."""
        return self.get(error.code())


FENCED = Codes(
    (KafkaError._FENCED, "the client has been told so before"),
    (KafkaError.PRODUCER_FENCED, "a newer producer has the transactional.id"),
    (KafkaError.INVALID_PRODUCER_EPOCH, "the same, in the words of older brokers"),
)
"""Another producer uses this transactional.id."""
EVICTED = Codes(
    (KafkaError.ILLEGAL_GENERATION, "the group has rebalanced since"),
    (KafkaError.UNKNOWN_MEMBER_ID, "the group has given this member up"),
    (KafkaError.STALE_MEMBER_EPOCH, "the group has rebalanced since (KIP-848)"),
    (KafkaError.FENCED_MEMBER_EPOCH, "the group has given this member up (KIP-848)"),
)
"""The group's rejections after a rebalance; the producers are not at fault."""
LOST = Codes((KafkaError._FATAL, "the client repeats the error that ended it"))
"""This client will never work again."""

REFUSED = Codes(
    (KafkaError.TOPIC_AUTHORIZATION_FAILED, "topic"),
    (KafkaError.GROUP_AUTHORIZATION_FAILED, "group"),
    (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional-id"),
    (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "cluster"),
)
"""A right is missing; the reason is the kind of its resource, as in `acls`."""
WRONG_LOGIN = Codes((KafkaError._AUTHENTICATION, "user, password or mechanism"))
NO_TRUST = Codes((KafkaError._SSL, "a certificate, or no TLS at all"))
UNKNOWN_CLIENT = Codes(*WRONG_LOGIN.items(), *NO_TRUST.items())
"""Broker and client reject each other. librdkafka retries for ever."""

UNFIT_RECORD = Codes(
    (KafkaError.MSG_SIZE_TOO_LARGE, "too-large"),
    (KafkaError.RECORD_LIST_TOO_LARGE, "too-large"),
    (KafkaError.INVALID_RECORD, "invalid-record"),
    (KafkaError.INVALID_TIMESTAMP, "invalid-timestamp"),
)
"""The broker never accepts the record; the reason is the one in dead letters and refused records."""
UNFIT_NEIGHBOUR = Codes((KafkaError._INVALID_DIFFERENT_RECORD, "the broker has named another record of the batch"))
NOT_WRITTEN = Codes(
    *UNFIT_RECORD.items(),
    *UNFIT_NEIGHBOUR.items(),
    *REFUSED.items(),
    (KafkaError.UNKNOWN_TOPIC_OR_PART, "the topic does not exist"),
    (KafkaError._UNKNOWN_TOPIC, "the client does not know the topic"),
    (KafkaError._UNKNOWN_PARTITION, "the client does not know the partition"),
    (KafkaError._PURGE_QUEUE, "the record was taken back before it was sent"),
)
"""A record is certainly not in the log. With other errors it may be."""
BEHIND_UNFIT = Codes(
    (KafkaError._STATE, "the transaction has failed already"),
    (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "the refused request before it left a gap"),
)
"""The client's errors for records and requests behind the rejected one."""

COORDINATOR_AWAY = Codes(
    (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, "the coordinator reads its log"),
    (KafkaError.COORDINATOR_NOT_AVAILABLE, "the coordinator is being elected"),
    (KafkaError.NOT_COORDINATOR, "the coordinator has moved"),
    (KafkaError._TIMED_OUT, "no answer yet"),
    (KafkaError._TRANSPORT, "the connection broke"),
)
BEGINS_LATER = Codes(
    (KafkaError.CONCURRENT_TRANSACTIONS, "the end of the last transaction is being written"),
    *COORDINATOR_AWAY.items(),
    (KafkaError._STATE, "the call before has not ended inside the client"),
)
"""The same `init_transactions` succeeds later."""
TOLD_LATER = Codes(
    (KafkaError.FENCED_LEADER_EPOCH, "the client's metadata is old"),
    (KafkaError.UNKNOWN_LEADER_EPOCH, "the broker's metadata is old"),
    (KafkaError.NOT_LEADER_FOR_PARTITION, "the leader has moved"),
    (KafkaError.LEADER_NOT_AVAILABLE, "a leader is being elected"),
    *COORDINATOR_AWAY.items(),
    (KafkaError.REQUEST_TIMED_OUT, "the broker is busy"),
    (KafkaError.UNSTABLE_OFFSET_COMMIT, "a transaction with this position is not decided"),
    (KafkaError._WAIT_COORD, "the client looks for the coordinator"),
)
"""The same question about offsets is answered later."""
NOBODY_THERE = Codes((KafkaError._ALL_BROKERS_DOWN, "no connection is up"))
NO_ANSWER = Codes((KafkaError._TIMED_OUT, "the broker does not answer in time"))
PASSING = Codes(*NOBODY_THERE.items(), *NO_ANSWER.items(), (KafkaError._TRANSPORT, "the connection broke"))
"""The client reconnects by itself."""
NOT_NOW = Codes((KafkaError._STATE, "the partition has not begun to be fetched, or the transaction has failed"))

END = Codes((KafkaError._PARTITION_EOF, "everything that is there has been read"))
OUT_OF_RANGE = Codes((KafkaError._AUTO_OFFSET_RESET, "the log does not hold the position, and `auto.offset.reset` is error"))
UNDECODABLE = Codes(
    (KafkaError._BAD_COMPRESSION, "it cannot be decompressed, or its records do not fit into receive.message.max.bytes"),
    (KafkaError._NOT_IMPLEMENTED, "the client does not know its codec or its version"),
    (KafkaError.MSG_SIZE_TOO_LARGE, "it is larger than any fetch may be"),
)
"""A batch cannot be read. The client repeats the same fetch for ever."""
UNDECODABLE_HINT = (
    "a batch there expands beyond receive.message.max.bytes, or is damaged: begin behind it, or delete what is before"
)
ABSENT = Codes(
    (KafkaError.UNKNOWN_TOPIC_OR_PART, "no topic of this name"),
    (KafkaError.UNKNOWN_TOPIC_ID, "no topic of this id"),
    (KafkaError._UNKNOWN_TOPIC, "the client knows of none"),
    (KafkaError.TOPIC_EXCEPTION, "no topic can have this name"),
)
CREATED_ALREADY = Codes((KafkaError.TOPIC_ALREADY_EXISTS, "another process has created it"))
GROWN_ALREADY = Codes((KafkaError.INVALID_PARTITIONS, "another process has given it as many partitions"))
LONG_TRANSACTION = Codes((KafkaError.INVALID_TRANSACTION_TIMEOUT, "the broker's transaction.max.timeout.ms is below ours"))
LIMITED = Codes(
    (KafkaError.POLICY_VIOLATION, "the broker limits partitions, or has a policy of its own for topics"),
    (KafkaError.INVALID_PARTITIONS, "the broker does not take this number of partitions"),
    (KafkaError.INVALID_REPLICATION_FACTOR, "the cluster has fewer brokers than default.replication.factor"),
    (KafkaError.INVALID_CONFIG, "the broker does not take the topic's configuration"),
)
"""The broker does not create a topic as requested, for a reason other than rights."""
NO_SUCH_GROUP = Codes((KafkaError.GROUP_ID_NOT_FOUND, "nobody has joined it, and it has committed nothing"))


def no_answer(message: str) -> KafkaException:
    """Return the error for a broker that does not answer while the library still waits."""
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, message))


def no_leader(message: str) -> KafkaException:
    """Return the error for an answer that lacks the values that only a partition's leader has."""
    return KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, message))
