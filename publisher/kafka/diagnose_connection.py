"""Diagnose why a Kafka client cannot use a broker, by a TLS handshake with the first address that accepts a connection.

The Kafka client reports only that a handshake has failed. The handshake of this module returns OpenSSL's error codes. The
module is used only after the client has failed.
"""

import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import NamedTuple

from publisher.kafka import tls_files
from publisher.kafka.clients import KafkaSettings

CONNECT_SECONDS = 2.0
ALERT_SECONDS = 0.5  # a broker rejects a client certificate right after the handshake
# the error codes of OpenSSL: X509_V_ERR_CERT_HAS_EXPIRED, X509_V_ERR_CERT_NOT_YET_VALID
EXPIRED = 10
NOT_YET = 9
OTHER_NAME = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH


class ConnectionDiagnosis(NamedTuple):
    """Why a client cannot use a broker.

    Attributes:
        problem: the fault.
        hint: the remedy.
        certain: False if a broker that is starting or stopping may cause the same symptom, so that a retry may succeed.
    """

    problem: str
    hint: str
    certain: bool = True


def diagnose(settings: KafkaSettings) -> ConnectionDiagnosis | None:
    """Connect to a broker as a client with these settings, and return the fault.

    The result is None if no address accepts a connection, or if the TLS handshake succeeds.
    """
    for host, port in _addresses(settings.bootstrap_servers):
        with contextlib.suppress(OSError), socket.create_connection((host, port), CONNECT_SECONDS) as connection:
            if not settings.security.tls:
                return _unencrypted(connection, f"{host}:{port}", settings)
            return _encrypted(connection, host, f"{host}:{port}", settings)
    return None


def _addresses(bootstrap_servers: str) -> Iterator[tuple[str, int]]:
    for address in bootstrap_servers.split(","):
        host, _, port = address.strip().rpartition("://")[2].rpartition(":")
        if host and port.isdecimal():
            yield host.strip("[]"), int(port)


def _unencrypted(connection: socket.socket, address: str, settings: KafkaSettings) -> ConnectionDiagnosis:
    """Diagnose a broker that accepts connections, but does not answer a client that is configured without TLS."""
    protocol = settings.security.protocol
    setting = f"{settings.section}.security.protocol"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with context.wrap_socket(connection):
            pass
    except (OSError, ValueError):
        return ConnectionDiagnosis(
            f"{address} accepts connections but does not answer over {protocol}",
            f"check that a Kafka broker listens there, and check {setting}: the listener may require TLS or a log-in",
            certain=False,
        )
    return ConnectionDiagnosis(f"{address} speaks TLS, but {setting} is {protocol}", f"set {setting} to SSL or SASL_SSL")


def _encrypted(connection: socket.socket, host: str, address: str, settings: KafkaSettings) -> ConnectionDiagnosis | None:
    security = settings.security
    context = ssl.create_default_context(cafile=security.ca_file)
    context.check_hostname = security.verify_hostname
    if security.certificate_file is not None and security.key_file is not None:
        locked_by = security.key_password_file
        context.load_cert_chain(
            security.certificate_file, security.key_file, tls_files.secret(locked_by) if locked_by else None
        )
    try:
        with context.wrap_socket(connection, server_hostname=host) as wrapped:
            wrapped.settimeout(ALERT_SECONDS)
            with contextlib.suppress(TimeoutError):
                wrapped.recv(1)
    except ssl.SSLCertVerificationError as error:
        return _untrusted(error, address, settings)
    except ssl.SSLError as error:
        return _alert(error, address, settings)
    return None


def _untrusted(error: ssl.SSLCertVerificationError, address: str, settings: KafkaSettings) -> ConnectionDiagnosis:
    section = f"{settings.section}.security"
    if error.verify_code == EXPIRED:
        return ConnectionDiagnosis(f"the certificate of {address} has expired", "renew the broker's certificate")
    if error.verify_code == NOT_YET:
        return ConnectionDiagnosis(
            f"the certificate of {address} is not valid yet", "check the clocks of this machine and of the broker"
        )
    if error.verify_code in OTHER_NAME:
        return ConnectionDiagnosis(
            f"the certificate of {address} is for another host name: {error.verify_message}",
            f"use a host name of the certificate in {settings.section}.bootstrap_servers, or set "
            f"{section}.verify_hostname: false",
        )
    trusted = f"{section}.ca_file ({settings.security.ca_file or 'not set'})"
    return ConnectionDiagnosis(
        f"the certificate of {address} comes from an authority that is not trusted: {error.verify_message}",
        f"{trusted} must hold the certificate of the authority that issued it",
    )


def _alert(error: ssl.SSLError, address: str, settings: KafkaSettings) -> ConnectionDiagnosis:
    """Return why the TLS handshake failed: the broker does not use TLS, or rejects or requires a client certificate."""
    security = settings.security
    section = f"{settings.section}.security"
    if "ALERT" not in str(error.reason):
        return ConnectionDiagnosis(
            f"{address} does not speak TLS, but {section}.protocol is {security.protocol}: {error.reason}",
            f"check the port, or set {section}.protocol to PLAINTEXT or SASL_PLAINTEXT",
            certain=False,
        )
    if security.certificate_file is None:
        return ConnectionDiagnosis(
            f"{address} requires a client certificate: {error.reason}",
            f"set {section}.certificate_file and {section}.key_file",
        )
    name = f"{section}.certificate_file ({security.certificate_file})"
    if end := tls_files.expired(security.certificate_file):
        return ConnectionDiagnosis(f"{name} expired on {end:%Y-%m-%d %H:%M} UTC", "renew this client certificate")
    return ConnectionDiagnosis(
        f"{address} refuses {name}: {error.reason}", "the certificate must come from an authority that the broker trusts"
    )
