"""Run the console: its feeds, and an HTTP server until SIGTERM."""

import contextlib
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from model_registry.channels.move_request import current_actor
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
STREAMS_SECONDS = 2  # time for open streams to end
BACKLOG = 64  # connections that asyncio accepts at once, before `BoundedProtocol` limits them


def serve(
    settings: Settings,
    config: Path,
    listen: str,
    on_listening: Callable[[str], None],
    *,
    allow_actions: bool,
    allow_hosts: Sequence[str],
    user_header: str | None,
) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        settings: The scorer's settings.
        config: The file of the settings, for the command lines on the pages.
        listen: The address, HOST:PORT.
        on_listening: Called with the URL when the server listens.
        allow_actions: Allow promotions, rollbacks and replays.
        allow_hosts: Host names that requests may use, besides loopback names and the host of `listen`.
        user_header: The request header with the actor's name.

    Raises:
        Fatal: With exit code 2 if the address is not available or the extra `console` is not installed.
        RegistryError: If the repository or the policy is not valid.
    """
    try:
        import uvicorn

        from scorer.console.connection_limits import BoundedProtocol
        from scorer.console.routes import Console
    except ImportError as error:
        hint = install_command("console")
        raise Fatal(f"the console needs the Python package {error.name}, which is not installed", hint, USAGE) from None
    listener, host = _listener(listen)
    state = ConsoleState()
    lines = CommandLines(settings, str(config))
    store = open_source(settings)
    keys = policy.read(settings.model.policy).keys if settings.model.policy else ()
    kafka = KafkaFeed(settings, state)
    registry = RegistryFeed(store, state)
    training = TrainingFeed(store, state, keys)
    actions = ActionRunner(settings, lines, store, state, registry.poll_now) if allow_actions else None
    hosts = [*LOOPBACK, *allow_hosts, *([host] if host not in ("0.0.0.0", "[::]", "") else [])]
    console = Console(
        settings, state, lines, actions, hosts, f"{current_actor()} (console)", user_header, lambda: server.should_exit
    )
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
    on_listening(f"http://{host if host not in ('0.0.0.0', '') else '127.0.0.1'}:{listener.getsockname()[1]}/")
    with contextlib.ExitStack() as closing:
        for close in (listener.close, training.close, registry.close, kafka.close, *([actions.close] if actions else [])):
            closing.callback(close)
        server.run(sockets=[listener])


def _listener(listen: str) -> tuple[socket.socket, str]:
    host, _, port = listen.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), int(port)))
        listener.listen()  # a client may connect as soon as it knows the address
    except (OSError, ValueError, OverflowError) as error:
        listener.close()
        raise Fatal(
            f"cannot listen on {listen}: {error}",
            "give another address with --listen HOST:PORT; port 0 takes a free port",
            USAGE,
        ) from None
    return listener, host
