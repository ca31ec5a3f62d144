"""The rights that the broker's ACLs must grant, and the error messages for missing rights, with the remedy.

Pure, except that the remedy depends on the role of the running command.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from confluent_kafka.admin import AclOperation

from publisher.errors import NotAllowed
from publisher.kafka import roles
from publisher.kafka.clients import KafkaSettings

TOPIC = "topic"
GROUP = "group"
TRANSACTIONAL_ID = "transactional-id"
CLUSTER = "cluster"
READ = AclOperation.READ
WRITE = AclOperation.WRITE
CREATE = AclOperation.CREATE
DESCRIBE = AclOperation.DESCRIBE
ALTER = AclOperation.ALTER
IMPLYING = frozenset({AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER})
"""Each of these rights implies Describe."""
Operations = frozenset[AclOperation]


class Right(NamedTuple):
    """The right to one operation on one resource.

    Attributes:
        operation: the operation.
        kind: the kind of the resource, such as `topic`; an option of kafka-acls.sh has the same name.
        name: the name of the resource, or a prefix of names followed by `*`.
    """

    operation: AclOperation
    kind: str
    name: str

    def __str__(self) -> str:
        resource = self.kind if self.kind == CLUSTER else f"{self.kind} {self.name!r}"
        return f"{self.operation.name.title()} on {resource}"


def to_read(*topics: str) -> dict[str, Operations]:
    """Return the operations that a client needs on topics whose records it reads."""
    return dict.fromkeys(topics, frozenset({READ}))


def to_describe(*topics: str) -> dict[str, Operations]:
    """Return the operations that a client needs on topics to read their start and end offsets, but no records."""
    return dict.fromkeys(topics, frozenset({DESCRIBE}))


def missing(needed: Mapping[str, Operations], granted: Mapping[str, Operations | None]) -> list[Right]:
    """Return the rights on topics that a client needs but does not have.

    Args:
        needed: the operations that the client needs, by topic.
        granted: the operations that the broker allows, by topic. If a topic has no entry, or None, its rights are unknown, and
            no right on it is reported as missing.
    """
    rights = []
    for topic, operations in needed.items():
        allowed = granted.get(topic)
        if allowed is None:
            continue
        for operation in sorted(operations, key=lambda candidate: candidate.name):
            implied = operation is DESCRIBE and not IMPLYING.isdisjoint(allowed)
            if operation not in allowed and not implied:
                rights.append(Right(operation, TOPIC, topic))
    return rights


def refused(settings: KafkaSettings, rights: Iterable[Right]) -> NotAllowed:
    """Return the error that names the missing `rights`.

    The hint of the error names the Kafka role that runs the current command, and contains the commands that grant the rights.
    """
    missing_rights = list(rights)
    names = "; ".join(f"no right to {right}" for right in missing_rights)
    role = roles.running_role()
    grant = f"grant the missing rights: {grants(settings, missing_rights, role)}"
    return NotAllowed(f"the broker denies access: {names}", roles.hint(grant, role))


def grants(settings: KafkaSettings, rights: Iterable[Right], role: str | None = None) -> str:
    """Return the kafka-acls.sh commands that grant the rights to the user of the role, for an administrator to run."""
    user = roles.principal(settings.security.username or "", role)
    return "; ".join(
        f"kafka-acls.sh --bootstrap-server {settings.bootstrap_servers} --add --allow-principal User:{user} "
        f"--operation {right.operation.name.title()} {_resource(right)}"
        for right in rights
    )


def _resource(right: Right) -> str:
    if right.kind == CLUSTER:
        return "--cluster"
    if right.name.endswith("*"):
        return f"--{right.kind} {right.name.removesuffix('*')} --resource-pattern-type prefixed"
    return f"--{right.kind} {right.name}"
