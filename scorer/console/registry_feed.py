"""The registry feed: one thread that polls the channels and records when the registry is unavailable."""

import threading
import time

from model_registry.channels import channel
from model_registry.errors import NotFound, RegistryError
from model_registry.oci import tags
from model_registry.stores.base import Store
from scorer.console.state import Channel, ConsoleState, RegistryView
from scorer.evaluation.decision_output import decided_output

POLL_SECONDS = 1.0
CHANNELS = 50  # largest number of channels that are polled
MOVES = 500  # newest moves of each channel that are kept


class RegistryFeed:
    """Poll the registry in a thread that runs until `close`, and write the results to the console's state."""

    def __init__(self, store: Store, state: ConsoleState) -> None:
        self._store = store
        self._state = state
        self._cache: dict[str, tuple[str, Channel]] = {}
        self._closing = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="registry", daemon=True)
        self._thread.start()

    def poll_now(self) -> None:
        """Poll immediately; called after this console has moved a channel."""
        self._wake.set()

    def close(self) -> None:
        """Stop the thread and wait until it has ended."""
        self._closing.set()
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                view = self._poll()
                self._look_up_outputs()
            except RegistryError as error:
                with self._state.lock:
                    self._state.record_error("registry", str(error), error.hint, time.time())
            else:
                with self._state.lock:
                    self._state.clear_error("registry")
                    if view != self._state.registry:
                        self._state.registry = view
                        self._state.changed()
            self._wake.wait(POLL_SECONDS)
            self._wake.clear()

    def _look_up_outputs(self) -> None:
        """Look up the decision outputs that the Kafka feed has requested. Raises a RegistryError if that fails."""
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
                self._state.add_output(digest, name)

    def _poll(self) -> RegistryView:
        existing = self._store.tags()
        names = [name for name in tags.channels(existing) if name in existing][:CHANNELS]
        channels = {name: self._channel(name, existing) for name in names}
        return RegistryView(self._store.repository, channels, tuple(tags.versions(existing)), read=True)

    def _channel(self, name: str, existing: list[str]) -> Channel:
        """Return the channel `name`, which is read from the registry only if it has moved since the last poll.

        `existing` are all tags of the repository.
        """
        # The tags include one for each revision of a channel, and so show its newest revision.
        try:
            validator = self._store.validator(name)
        except NotFound:
            validator = ""
        newest = next(iter(tags.revisions(existing, name)), 0)
        validators = f"{validator} {newest}"
        cached = self._cache.get(name)
        if cached is None or cached[0] != validators:
            old = list(cached[1].moves) if cached else []
            after = old[-1].revision if old else max(0, newest - MOVES)
            moves = [*old, *channel.history(self._store, name, after)][-MOVES:]
            current = channel.resolve(self._store, name)
            cached = (
                validators,
                Channel(name, current.version, current.digest, current.revision, current.roles, tuple(moves)),
            )
            self._cache[name] = cached
        return cached[1]
