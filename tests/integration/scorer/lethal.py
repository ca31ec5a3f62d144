"""`scorer`, with a model and a decoder that kill the process when they meet certain events.

An event's first number says how it kills the model, or one version of it alone, or breaks the device that all models of the
process are on; the words `"kill": "decoder"` in an event kill
the decoder. Examiners begin with this module too.
"""

import ctypes
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from model_registry.package import Package
from model_registry.package.signature import Signature
from scorer import cli
from scorer.backends import select
from scorer.backends.base import InferenceFailed, Model
from scorer.decoding.json.decoder import JsonDecoder
from scorer.decoding.record_metadata import RecordMetadata
from scorer.decoding.types import Decoded
from scorer.settings.model import ModelSettings

SEGFAULT, ABORT, OUT_OF_MEMORY, ENDLESS, SLOW = -661.0, -662.0, -663.0, -664.0, -665.0
KILLS_CANDIDATE, CANDIDATE = -666.0, "2.0.0"
BREAKS, BREAKS_CANDIDATE = -667.0, -668.0
DECODER = {"kill": "decoder"}
find, decode = select.backend_for, JsonDecoder.decode


def _endless() -> None:
    while True:
        pass


KILLS: dict[float, Callable[[], Any]] = {
    SEGFAULT: lambda: ctypes.string_at(0),
    ABORT: os.abort,
    OUT_OF_MEMORY: lambda: os.kill(os.getpid(), signal.SIGKILL),  # as the kernel does
    ENDLESS: _endless,
    SLOW: lambda: time.sleep(1.0),
}


class LethalModel:
    device_works = True

    def __init__(self, model: Model, version: str) -> None:
        self._model = model
        self.device = model.device
        self._breaks = {BREAKS, BREAKS_CANDIDATE} if version == CANDIDATE else {BREAKS}
        self._kills = KILLS | ({KILLS_CANDIDATE: KILLS[SEGFAULT]} if version == CANDIDATE else {})

    def signature(self) -> Signature:
        return self._model.signature()

    def run(self, tensors: dict[str, Any]) -> dict[str, Any]:
        for number in tensors["x"][:, 0].tolist():
            if number in self._kills:
                self._kills[number]()
            if number in self._breaks:
                LethalModel.device_works = False
        if not LethalModel.device_works:
            raise InferenceFailed("an illegal memory access was encountered")  # as after one on a GPU: at every event
        return self._model.run(tensors)

    def close(self) -> None:
        self._model.close()


class LethalBackend:
    def __init__(self, model: ModelSettings) -> None:
        self._backend = find(model)

    def open(self, package: Package) -> LethalModel:
        return LethalModel(self._backend.open(package), package.version)


def lethal_decode(decoder: JsonDecoder, values: Sequence[bytes | None], parts: RecordMetadata | None = None) -> Decoded:
    if any(value and b'"kill": "decoder"' in value for value in values):
        KILLS[SEGFAULT]()
    return decode(decoder, values, parts)


if __name__ in ("__main__", "__mp_main__"):  # as examiners call it
    select.backend_for = LethalBackend
    JsonDecoder.decode = lethal_decode  # type: ignore[method-assign, assignment]
if __name__ == "__main__":
    cli.main()
