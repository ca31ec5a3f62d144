"""A real Apache Kafka with an authorizer and a listener for every way of authentication, right ones and wrong ones."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from scorer.demo.broker.embedded import EmbeddedBroker
from scorer.demo.broker.kraft_config import HOST, free_ports
from tests.integration.security.certificates import Certificates, Identity
from tests.support.topics import admin, settle

PASSWORD = "hush-4711-do-not-tell"
LISTENERS = {
    "SCRAM": "SASL_SSL",
    "CLEAR": "SASL_PLAINTEXT",
    "MUTUAL": "SSL",
    "EXPIRED": "SSL",
    "OTHER": "SSL",
    "NAMED": "SASL_SSL",
}
"""Name, and the protocol it speaks: TLS with a password, a password in the clear, certificates on both sides, servers whose
certificate has expired or is another host's, and one more of these with a password."""
LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"

Right = tuple[ResourceType, str, AclOperation]
"""What, its name (a prefix where it ends with `*`), and what may be done with it."""


class SecuredBroker:
    """See the module. The plaintext listener, which only the tests know, is the administrator's."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.certificates = Certificates(folder)
        self._ports = dict(zip(LISTENERS, (port for _ in LISTENERS for port in free_ports()[:1]), strict=True))
        self._broker = EmbeddedBroker(properties=self._properties)
        self.password = PASSWORD

    def address(self, listener: str) -> str:
        return f"{HOST}:{self._ports[listener]}"

    @property
    def administrator(self) -> str:
        """Return the `host:port` at which every client has all rights."""
        return self._broker.bootstrap_servers

    def admin(self) -> AdminClient:
        return admin(self.administrator)

    def users(self, rights: Mapping[str, Iterable[Right]]) -> None:
        """Make users with PASSWORD (SCRAM) who may do this and nothing else."""
        admin = self.admin()
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        settle(
            admin.alter_user_scram_credentials([UserScramCredentialUpsertion(name, info, PASSWORD.encode()) for name in rights])
        )
        self.grant(rights)

    def forget(self, user: str) -> None:
        deletion = UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_512)
        settle(self.admin().alter_user_scram_credentials([deletion]))

    def grant(self, rights: Mapping[str, Iterable[Right]]) -> None:
        bindings = [acl(f"User:{name}", right) for name, all_rights in rights.items() for right in all_rights]
        if bindings:
            settle(self.admin().create_acls(bindings))

    def revoke(self, rights: Mapping[str, Iterable[Right]]) -> None:
        filters = [acl_filter(f"User:{name}", right) for name, all_rights in rights.items() for right in all_rights]
        settle(self.admin().delete_acls(filters))

    def __enter__(self) -> Self:
        self._broker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._broker.stop()

    def _properties(self, ports: tuple[int, int]) -> dict[str, str]:
        broker, controller = ports
        addresses = {"PLAINTEXT": f"{HOST}:{broker}"} | {name: self.address(name) for name in LISTENERS}
        listeners = ",".join(f"{name}://{address}" for name, address in addresses.items())
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"} | LISTENERS
        trusted = self.certificates
        servers = dict.fromkeys(("SCRAM", "MUTUAL"), trusted.server) | dict.fromkeys(("OTHER", "NAMED"), trusted.other_host)
        servers["EXPIRED"] = trusted.expired_server
        properties = {
            "listeners": f"{listeners},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            "inter.broker.listener.name": "PLAINTEXT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "listener.name.clear.connections.max.reauth.ms": "2000",
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": r"RULE:^.*CN=([^,]+).*$/$1/,DEFAULT",
        }
        for name, identity in servers.items():
            properties |= _tls(name.lower(), identity, trusted.ca)
        for name in ("scram", "clear", "named"):
            properties[f"listener.name.{name}.sasl.enabled.mechanisms"] = "SCRAM-SHA-512"
            properties[f"listener.name.{name}.scram-sha-512.sasl.jaas.config"] = LOGIN
        return properties


def acl(principal: str, right: Right) -> AclBinding:
    kind, name, operation = right
    pattern = ResourcePatternType.PREFIXED if name.endswith("*") else ResourcePatternType.LITERAL
    return AclBinding(kind, name.removesuffix("*"), pattern, principal, "*", operation, AclPermissionType.ALLOW)


def acl_filter(principal: str, right: Right) -> AclBindingFilter:
    rule = acl(principal, right)
    pattern = rule.resource_pattern_type
    return AclBindingFilter(rule.restype, rule.name, pattern, principal, "*", rule.operation, AclPermissionType.ALLOW)


def _tls(listener: str, identity: Identity, ca: Path) -> dict[str, str]:
    values = {
        "keystore.type": "PEM",
        "keystore.location": str(identity.store),
        "truststore.type": "PEM",
        "truststore.location": str(ca),
    }
    return {f"listener.name.{listener}.ssl.{key}": value for key, value in values.items()}
