"""`scorer console`: the feeds, and the pages over HTTP until SIGTERM."""

import contextlib
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from model_registry.commands.options import actor
from model_registry.extras import install_command
from model_registry.signing import policy
from publisher.errors import USAGE, Fatal
from scorer.console.actions import ActionRunner
from scorer.console.command_lines import CommandLines
from scorer.console.kafka_feed import KafkaFeed
from scorer.console.registry_feed import RegistryFeed
from scorer.console.state import ConsoleState
from scorer.console.training.feed import TrainingFeed
from scorer.models.registry_access import open_source
from scorer.settings import Settings

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
STREAMS_SECONDS = 2  # that open streams may take to end
BACKLOG = 64  # asyncio accepts so many connections in one turn, before the limit of `BoundedProtocol` applies to them


def serve(
    settings: Settings,
    config: Path,
    listen: str,
    told: Callable[[str], None],
    *,
    allow_actions: bool,
    allow_hosts: Sequence[str],
    user_header: str | None,
) -> None:
    """Serve until SIGTERM or Ctrl-C, with the options of `scorer console`; `told` hears the address. Raises Fatal (2) for an
    address that cannot be listened on, and where the extra is not installed; RegistryError for a repository that nothing can be
    opened with, and for a policy that does not read."""
    try:
        import uvicorn

        from scorer.console.bounded_protocol import BoundedProtocol
        from scorer.console.web import Console
    except ImportError as error:
        hint = install_command("console")
        raise Fatal(f"the console needs {error.name}", hint, USAGE) from None
    listener, host = _listener(listen)
    state, lines, store = ConsoleState(), CommandLines(settings, str(config)), open_source(settings)
    keys = policy.read(settings.model.policy).keys if settings.model.policy else ()
    bus, registry, training = KafkaFeed(settings, state), RegistryFeed(store, state), TrainingFeed(store, state, keys)
    actions = ActionRunner(settings, lines, store, state, registry.hurry) if allow_actions else None
    hosts = [*LOOPBACK, *allow_hosts, *([host] if host not in ("0.0.0.0", "[::]", "") else [])]
    console = Console(settings, state, lines, actions, hosts, f"{actor()} (console)", user_header, lambda: server.should_exit)
    server = uvicorn.Server(
        uvicorn.Config(
            console.app(),
            http=BoundedProtocol,
            backlog=BACKLOG,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=STREAMS_SECONDS,
        )
    )
    told(f"http://{host if host not in ('0.0.0.0', '') else '127.0.0.1'}:{listener.getsockname()[1]}/")
    with contextlib.ExitStack() as closing:
        for close in (listener.close, training.close, registry.close, bus.close, *([actions.close] if actions else [])):
            closing.callback(close)
        server.run(sockets=[listener])


def _listener(listen: str) -> tuple[socket.socket, str]:
    host, _, port = listen.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    made = socket.socket(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host.strip("[]"), int(port)))
        made.listen()  # a reader of the address may ask at once
    except (OSError, ValueError, OverflowError) as error:
        made.close()
        raise Fatal(f"cannot listen on {listen}: {error}", "--listen HOST:PORT; port 0 takes a free one", USAGE) from None
    return made, host
