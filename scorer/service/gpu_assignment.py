"""Assign the GPUs of this machine to the workers of `scorer run`.

CUDA_VISIBLE_DEVICES makes one GPU visible to each worker, so that the worker uses no memory of other GPUs.
"""

# The worker's libraries then need no device number. A child process queries the driver, because a process that has initialised
# CUDA must not fork workers.

import logging
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Literal

from publisher.errors import USAGE, Fatal
from scorer.backends.base import BackendMissing
from scorer.backends.onnx import gpu
from scorer.settings.model import ModelSettings

log = logging.getLogger(__name__)

VISIBLE = "CUDA_VISIBLE_DEVICES"


def visible_devices(model: ModelSettings, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return one value of CUDA_VISIBLE_DEVICES for each GPU that workers may use.

    The list is empty if the model runs on the CPU, or if the GPUs cannot be counted.

    Raises:
        Fatal: `model.devices` names a GPU that is not visible.
    """
    # If the GPUs cannot be counted, each worker reports the fault when it starts.
    if model.device == "cpu":
        return []
    count = _count_in_child(model.device)
    return select_devices(model.devices, count, environment.get(VISIBLE)) if count else []


def select_devices(devices: Sequence[int] | Literal["all"], count: int, visible: str | None) -> list[str]:
    """Return the selected GPUs as entries of `visible`, or as numbers if `visible` is None or empty.

    Args:
        devices: the numbers of the selected GPUs, counted from 0 among the visible GPUs, or "all".
        count: the number of visible GPUs.
        visible: the value of CUDA_VISIBLE_DEVICES in the environment of `scorer run`.

    Raises:
        Fatal: One of `devices` is not among the visible GPUs.
    """
    names = [name.strip() for name in visible.split(",")] if visible else [str(number) for number in range(count)]
    if devices == "all":
        return names[:count]
    if missing := [number for number in devices if number >= count]:
        available = "1 is" if count == 1 else f"{count} are"
        limited = f" ({VISIBLE}={visible})" if visible else ""
        raise Fatal(
            f"model.devices names GPU {missing[0]}, but {available} visible, numbered from 0{limited}",
            f"name GPUs from 0 to {count - 1}, or leave model.devices out to use all of them",
            USAGE,
        )
    return [names[number] for number in devices]


def _count_in_child(device: str) -> int:
    """Return the number of visible GPUs, counted in a child process; 0 if the driver is missing or fails."""
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    process = fork.Process(target=_send_count, args=(device, sender))
    process.start()
    sender.close()
    with receiver:
        try:
            count: int = receiver.recv()
        except EOFError:
            count = 0  # the driver ended the process
    process.join()
    return count


def _send_count(device: str, sender: "Connection[int, None]") -> None:
    try:
        sender.send(gpu.count_gpus(device, gpu.load_driver(device)))
    except BackendMissing as error:
        log.warning("cannot count the GPUs: %s", error)
        sender.send(0)
