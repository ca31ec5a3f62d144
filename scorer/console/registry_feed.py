"""The feed from the registry: one thread that looks at the channels every few seconds, and says when it does not answer."""

import threading
import time

from model_registry.channels import channel
from model_registry.errors import NotFound, RegistryError
from model_registry.oci import tags
from model_registry.stores.base import Store
from scorer.console.state import Channel, ConsoleState, RegistryView
from scorer.evaluation.decision_output import decided_output

LOOK_SECONDS = 1.0
CHANNELS = 50  # that are followed
MOVES = 500  # of each that are shown


class RegistryFeed:
    """Looks until `close`."""

    def __init__(self, store: Store, state: ConsoleState) -> None:
        self._store = store
        self._state = state
        self._known: dict[str, tuple[str, Channel]] = {}
        self._closing = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="registry", daemon=True)
        self._thread.start()

    def hurry(self) -> None:
        """Look now: something was moved from here."""
        self._wake.set()

    def close(self) -> None:
        self._closing.set()
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                view = self._look()
                self._look_up_outputs()
            except RegistryError as error:
                with self._state.lock:
                    self._state.trouble("registry", str(error), error.hint, time.time())
            else:
                with self._state.lock:
                    self._state.well("registry")
                    if view != self._state.registry:
                        self._state.registry = view
                        self._state.changed()
            self._wake.wait(LOOK_SECONDS)
            self._wake.clear()

    def _look_up_outputs(self) -> None:
        """Look up the outputs that versions decide on, as far as they are asked for. Raises RegistryError."""
        with self._state.lock:
            wanted = list(self._state.outputs.wanted)
        for digest in wanted:
            try:
                name = decided_output(self._store, digest)
            except RegistryError as error:
                if error.transient:
                    raise
                name = None
            with self._state.lock:
                self._state.found_output(digest, name)

    def _look(self) -> RegistryView:
        there = self._store.tags()
        names = [name for name in tags.channels(there) if name in there][:CHANNELS]
        channels = {name: self._channel(name, there) for name in names}
        return RegistryView(self._store.repository, channels, tuple(tags.versions(there)), read=True)

    def _channel(self, name: str, there: list[str]) -> Channel:
        """A channel; asked for anew only where it has moved."""
        try:
            validator = self._store.validator(name)
        except NotFound:
            validator = ""
        newest = next(iter(tags.revisions(there, name)), 0)
        mark = f"{validator} {newest}"
        known = self._known.get(name)
        if known is None or known[0] != mark:
            old = list(known[1].moves) if known else []
            after = old[-1].revision if old else max(0, newest - MOVES)
            moves = [*old, *channel.history(self._store, name, after)][-MOVES:]
            found = channel.resolve(self._store, name)
            known = mark, Channel(name, found.version, found.digest, found.revision, found.roles, tuple(moves))
            self._known[name] = known
        return known[1]
