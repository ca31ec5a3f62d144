"""A network called directly in a loop, batch by batch, without a broker: the reference for a scorer."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort

from scorer.backends.cost_curve import measure_cost_curve
from scorer.backends.onnx.onnx_runtime import ORDER
from tests.benchmarks.gpu.networks import Network


def directly(network: Network, device: str, path: Path, sizes: Sequence[int], seconds: float) -> float:
    """Return the events per second of the best batch size, measured for `seconds`. All data is in the host's memory."""
    options = ort.SessionOptions()
    if device == "cpu":
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # as in a scorer, which has one core
    else:
        ort.preload_dlls()
    session = ort.InferenceSession(str(path), options, providers=ORDER[device])
    random = np.random.default_rng(1)
    dtype = network.stated["dtype"]
    batches = {size: np.stack([network.draw(random).astype(dtype) for _ in range(size)]) for size in sizes}
    curve = measure_cost_curve(sizes, lambda size: session.run(["y"], {"x": batches[size]}), too_large=(Exception,))
    best = max(curve, key=lambda size: size / curve[size])
    rounds, began = 0, time.perf_counter()
    while (passed := time.perf_counter() - began) < seconds:
        session.run(["y"], {"x": batches[best]})
        rounds += 1
    return rounds * best / passed
