"""How to talk to a store: what the command line and the settings say beside the reference."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from model_registry.oci.manifest import Descriptor

Progress = Callable[[Descriptor, int], None]
"""Called with some content and how many of its bytes have been sent or received so far, from any thread, often."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Options of remote registries; a folder needs none of them.

    `plain_http` talks HTTP without TLS: True to any loopback host, else to the hosts (`host:port`) that it names. `ca_file`
    holds PEM certificates that are trusted beside those of the system (or of SSL_CERT_FILE). `timeout_seconds` is how long
    the registry may be silent, or send next to nothing. `mount_from` are repositories of the same registry (`team/base`) that
    may already hold what is pushed.
    """

    plain_http: bool | Sequence[str] = False
    ca_file: Path | None = None
    timeout_seconds: float = 30.0
    progress: Progress | None = None
    mount_from: tuple[str, ...] = ()


DEFAULTS = StoreOptions()
