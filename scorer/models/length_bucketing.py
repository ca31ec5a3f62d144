"""Length bucketing on every backend: the model runs once for each group of events with arrays of similar length."""

import time
from collections.abc import Callable

from model_registry.package.padding import MAX_STEPS, LengthPlan, Tensors, run_all
from model_registry.package.shapes import format_shape
from model_registry.package.signature import Signature
from scorer.backends.base import InferenceFailed, Model
from scorer.models.latency_model import LatencyModel


class LengthBucketedRuns:
    """Divides the batches of one model into runs of events with arrays of similar length, and executes the runs.

    Each run is planned so that it takes at most `deadline` seconds. A run of only one event may take longer.
    """

    def __init__(self, signature: Signature, deadline: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._lengths = LengthPlan(signature)
        self._alone = signature.alone
        self._deadline = deadline
        self._clock = clock
        self._cost = LatencyModel()  # by steps, the number of events times their padded length
        self._shapes: dict[str, tuple[int, ...]] = {}

    def run(self, model: Model, tensors: Tensors, alive: Callable[[], object]) -> Tensors:
        """Run the model once for each group of events with arrays of similar length.

        The outputs are returned in the order of the events. `alive` is called before each run. Raises InferenceFailed,
        DependencyUnavailable.
        """
        runs = self._lengths.plan(tensors, self._cost.largest_batch(self._deadline, MAX_STEPS))

        def run_part(part: Tensors, steps: int) -> Tensors:
            alive()
            began = self._clock()
            outputs = model.run(part)
            self._cost.observe(steps, self._clock() - began)
            if not self._alone:
                self._check_shapes(outputs)
            return outputs

        try:
            return run_all(runs, tensors, run_part, alone=self._alone)
        except ValueError as error:
            raise InferenceFailed(str(error)) from error

    def _check_shapes(self, outputs: Tensors) -> None:
        """Check that each output has the same shape per event as in earlier runs. Raises InferenceFailed."""
        for name, output in outputs.items():
            shape = output.shape[1:]
            if (previous := self._shapes.setdefault(name, shape)) != shape:
                shapes = f"{format_shape((None, *shape))}, and had {format_shape((None, *previous))}"
                error = f"output {name!r} has the shape {shapes}"
                hint = 'a score has one shape, unless "batch": false feeds one event at a time'
                raise InferenceFailed(f"{error} for events of another length; {hint}")
