"""The rules for each property of librdkafka 2.16: whether the setting `extra` may contain it, and whether its value is secret.

The rules apply to `kafka.extra`, to a relay's `source.extra` and `destination.extra`, and to `publisher audit -X`. All other
properties are rejected.
"""

import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_OFFSETS = "offsets are committed together with the scores, or an event is lost or answered twice after a crash"
_GROUP = "all scorers of a group need the same protocol, which `group_protocol` sets"
_DURABLE = "a record counts as written once all in-sync replicas have it, in order and once"
_EXPIRY = "a record that expires alone is lost, or overtaken by the next one; `transaction_timeout_ms` limits a batch"
_BACKOFF = "a repeated EndTxn would commit half of the next transaction (publisher/README.md)"
_BATCHES = "it follows from the topics' max.message.bytes: a larger batch is never accepted"
_VERSIONS = "transactions need the versions of requests that the broker reports"
_FUNCTION = "it takes a function or a pointer of a program, not a value"
_SHARE = "share groups keep no order"
_OTHERS_CODE = "foreign code in the client could change every record and offset"
_UNREAD = "no part of the product reads it"

REJECTED: Mapping[str, str] = MappingProxyType(
    {
        "bootstrap.servers": "`bootstrap_servers` sets it",
        "metadata.broker.list": "`bootstrap_servers` sets it",
        "client.id": "it identifies a scorer or relay in its group, in committed offsets and in status records",
        "group.id": "`name` is the consumer group; in another group, events would be answered twice",
        "group.instance.id": "workers and restarted consumers would share the id and fence each other",
        "group.protocol": "`group_protocol` sets it",
        "group.protocol.type": _GROUP,
        "group.remote.assignor": _GROUP,
        "partition.assignment.strategy": _GROUP,
        "session.timeout.ms": "`session_timeout_ms` sets it: take-overs and the check for duplicate replicas use this value",
        "heartbeat.interval.ms": "it follows from `session_timeout_ms`",
        "isolation.level": "events and scores of aborted transactions would be read",
        "enable.auto.commit": _OFFSETS,
        "auto.commit.enable": _OFFSETS,
        "auto.commit.interval.ms": _OFFSETS,
        "enable.auto.offset.store": _OFFSETS,
        "offset.store.method": _OFFSETS,
        "offset.store.path": _OFFSETS,
        "offset.store.sync.interval.ms": _OFFSETS,
        "auto.offset.reset": "a lost position must stop the partition, not skip events; see `input.start`",
        "enable.partition.eof": "the product needs it to move positions past transaction markers",
        "allow.auto.create.topics": "a misspelt topic would be created; `check CONFIG --create` creates topics",
        "topic.blacklist": "the events of hidden topics would never be read",
        "transactional.id": "a dead owner's transactions are fenced by ids that follow from `name` and `replica`",
        "transaction.timeout.ms": "`transaction_timeout_ms` sets it",
        "message.timeout.ms": _EXPIRY,
        "delivery.timeout.ms": _EXPIRY,
        "enable.idempotence": _DURABLE,
        "acks": _DURABLE,
        "request.required.acks": _DURABLE,
        "max.in.flight": _DURABLE,
        "max.in.flight.requests.per.connection": _DURABLE,
        "retries": _DURABLE,
        "message.send.max.retries": _DURABLE,
        "enable.gapless.guarantee": _DURABLE,
        "queuing.strategy": _DURABLE,
        "msg_order_cmp": _FUNCTION,
        "partitioner": "the records of a key would move to another partition and lose their order",
        "retry.backoff.ms": _BACKOFF,
        "retry.backoff.max.ms": _BACKOFF,
        "metadata.recovery.strategy": "a call that waits for a rebootstrap may never return (publisher/README.md)",
        "socket.max.fails": "after a request that timed out, later answers would be taken for earlier ones",
        "batch.size": _BATCHES,
        "batch.num.messages": _BATCHES,
        "delivery.report.only.error": "the product decides which deliveries are reported",
        "api.version.request": _VERSIONS,
        "api.version.fallback.ms": _VERSIONS,
        "broker.version.fallback": _VERSIONS,
        "enable.ssl.certificate.verification": "any server could pass for a broker; use `security.ca_file` instead",
        "plugin.library.paths": _OTHERS_CODE,
        "interceptors": _OTHERS_CODE,
        "max.poll.records": _SHARE,
        "share.acknowledgement.mode": _SHARE,
        "statistics.interval.ms": f"{_UNREAD}; `/metrics` has the product's own metrics",
        "enabled_events": _UNREAD,
        "log.queue": f"{_UNREAD}: log lines would pile up",
        "internal.termination.signal": "the process handles signals itself",
        **dict.fromkeys(
            (
                "background_event_cb",
                "closesocket_cb",
                "connect_cb",
                "consume_cb",
                "default_topic_conf",
                "dr_cb",
                "dr_msg_cb",
                "error_cb",
                "log_cb",
                "oauthbearer_token_refresh_cb",
                "offset_commit_cb",
                "opaque",
                "open_cb",
                "partitioner_cb",
                "rebalance_cb",
                "resolve_cb",
                "socket_cb",
                "ssl.certificate.verify_cb",
                "ssl_ca",
                "ssl_certificate",
                "ssl_engine_callback_data",
                "ssl_key",
                "stats_cb",
                "throttle_cb",
            ),
            _FUNCTION,
        ),
    }
)
"""Properties that `extra` must not contain, each with the reason."""

SECRET = frozenset(
    {
        "sasl.kerberos.kinit.cmd",  # a command line, which may hold a password
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.extensions",
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
    }
)
"""Properties that `extra` may contain, but whose values are never printed."""

ALLOWED = frozenset(
    {
        "api.version.request.timeout.ms",
        "broker.address.family",
        "broker.address.ttl",
        "builtin.features",
        "check.crcs",
        "client.dns.lookup",
        "client.rack",
        "compression.codec",
        "compression.level",
        "compression.type",
        "connections.max.idle.ms",
        "consume.callback.max.messages",
        "coordinator.query.interval.ms",
        "debug",
        "enable.metrics.push",
        "enable.random.seed",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "fetch.error.backoff.ms",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "fetch.min.bytes",
        "fetch.queue.backoff.ms",
        "fetch.wait.max.ms",
        "https.ca.location",
        "https.ca.pem",
        "linger.ms",
        "log.connection.close",
        "log.thread.name",
        "log_level",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "message.copy.max.bytes",
        "message.max.bytes",
        "metadata.max.age.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "produce.offset.report",
        "queue.buffering.backpressure.threshold",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queue.buffering.max.ms",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "receive.message.max.bytes",
        "reconnect.backoff.jitter.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "sasl.kerberos.keytab",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.principal",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.oauthbearer.assertion.algorithm",
        "sasl.oauthbearer.assertion.claim.aud",
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        "sasl.oauthbearer.assertion.claim.iss",
        "sasl.oauthbearer.assertion.claim.jti.include",
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        "sasl.oauthbearer.assertion.claim.sub",
        "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.jwt.template.file",
        "sasl.oauthbearer.assertion.private.key.file",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.grant.type",
        "sasl.oauthbearer.metadata.authentication.type",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.sub.claim.name",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.username",
        "security.protocol",
        "socket.blocking.max.ms",
        "socket.connection.setup.timeout.ms",
        "socket.keepalive.enable",
        "socket.nagle.disable",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
        "socket.timeout.ms",
        "ssl.ca.certificate.stores",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.cipher.suites",
        "ssl.crl.location",
        "ssl.curves.list",
        "ssl.endpoint.identification.algorithm",
        "ssl.engine.id",
        "ssl.engine.location",
        "ssl.key.location",
        "ssl.keystore.location",
        "ssl.providers",
        "ssl.sigalgs.list",
        "sticky.partitioning.linger.ms",
        "topic.metadata.propagation.max.ms",
        "topic.metadata.refresh.fast.cnt",
        "topic.metadata.refresh.fast.interval.ms",
        "topic.metadata.refresh.interval.ms",
        "topic.metadata.refresh.sparse",
    }
)
"""Properties that `extra` may contain and whose values may be printed."""

LOWEST: Mapping[str, tuple[int, str]] = MappingProxyType(
    {"topic.metadata.refresh.interval.ms": (1, "partitions that are added would never be read")}
)
"""The lowest allowed values of some properties, each with the reason."""


def faults(extra: Mapping[str, object]) -> dict[str, str]:
    """Return the reason and the remedy for each property that `extra` must not contain, by property.

    No text contains the value of a property, which may be secret.
    """
    rejected = {key: _fault(key, value) for key, value in sorted(extra.items())}
    return {key: text for key, text in rejected.items() if text is not None}


class PropertyFaults(ValueError):
    """The setting `extra` contains forbidden properties. `faults` has the reason and the remedy, by property."""

    def __init__(self, faults: Mapping[str, str]) -> None:
        super().__init__(property_lines("extra", faults))
        self.faults = faults


def property_lines(section: str, faults: Mapping[str, str]) -> str:
    """Return one error line for each faulty property in `faults`.

    Args:
        section: the name of the setting that contains the properties, such as `kafka.extra`.
        faults: the reason and the remedy, by the name of the property.
    """
    return "\n".join(f"{section}.{key}: {text}" for key, text in faults.items())


def check(extra: Mapping[str, object]) -> None:
    """Raise PropertyFaults if `extra` contains a property that it must not contain."""
    if rejected := faults(extra):
        raise PropertyFaults(rejected)


def error_lines(fault: Mapping[str, Any], section: str) -> str | None:
    """Return the error lines for forbidden properties in `<section>.extra`; None if `fault` is another error.

    Args:
        fault: one of pydantic's errors.
        section: the name of the section that contains `extra`.
    """
    error = fault.get("ctx", {}).get("error")
    return property_lines(f"{section}.extra", error.faults) if isinstance(error, PropertyFaults) else None


def _fault(key: str, value: object) -> str | None:
    if (reason := REJECTED.get(key)) is not None:
        return f"must not be set: {reason}; remove it"
    if key not in ALLOWED | SECRET:
        near = difflib.get_close_matches(key, ALLOWED | SECRET, n=1, cutoff=0.5)
        nearest = f"the nearest valid name is {near[0]!r}" if near else "scorer/docs/client-properties.md lists the properties"
        return f"no property of the Kafka client has this name; {nearest}"
    if key in LOWEST and not _at_least(LOWEST[key][0], value):
        return f"must be {LOWEST[key][0]} or more: {LOWEST[key][1]}"
    return None


def _at_least(lowest: int, value: object) -> bool:
    try:
        return int(str(value)) >= lowest
    except ValueError:
        return True  # librdkafka itself reports a value that is not a number
