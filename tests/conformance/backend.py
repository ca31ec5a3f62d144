"""Behaviour of every backend, whichever runtime it uses. A subclass provides the fixture `place`."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_registry.package import Package
from scorer.backends import select
from scorer.backends.base import Backend, InferenceFailed, Model, ModelRefused
from scorer.settings.model import ModelSettings
from tests.integration.backends import models
from tests.integration.backends.models import Tensors
from tests.integration.backends.servers import ModelServer


@dataclass
class Place:
    """Creates and opens models of one backend; `server` is None if they run in this process."""

    settings: ModelSettings
    folder: Path
    model: Callable[[Path, float], None]
    server: ModelServer | None = None
    created: int = 0

    def backend(self, **settings: Any) -> Backend:
        return select.backend_for(self.settings.model_copy(update=settings))

    def package(self, factor: float, **signature: Any) -> Package:
        self.created += 1
        folder = models.folder(self.folder / f"{self.created}", factor, **signature)
        self.model(folder, factor)
        return models.read(folder, self.folder.name)


def same(outputs: Tensors, expected: Tensors) -> None:
    """Compare the requested outputs: shapes, dtypes and values."""
    for name, output in outputs.items():
        assert output.shape == expected[name].shape
        assert output.dtype == expected[name].dtype
        assert output.tolist() == expected[name].tolist()


class BackendConformance:
    """Tests of shapes, dtypes, strings, order, refusals, errors and several versions."""

    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls, place: Place) -> Backend:
        return place.backend()

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls, place: Place, backend: Backend) -> Model:
        """Open a version with the factor 2, of which every output is read."""
        return backend.open(place.package(2.0, output=models.OUTPUTS))

    @pytest.mark.parametrize("rows", [1, 7, 1_500])
    def test_rows_are_returned_in_order_with_their_shapes_and_dtypes(self, model: Model, rows: int) -> None:
        inputs = models.tensors(rows, first=100)
        same(model.run(inputs), models.expected(inputs, 2.0))

    def test_only_outputs_that_the_signature_reads_are_returned(self, place: Place, backend: Backend) -> None:
        model = backend.open(place.package(3.0))
        assert set(model.run(models.tensors(2))) == {"y"}
        model.close()

    @pytest.mark.parametrize("rows", [1, 600])
    def test_shapes_and_constants_are_fed(self, place: Place, backend: Backend, rows: int) -> None:
        declared = [
            {"tensor": "x", "dtype": "float32", "shape": [2], "fields": [{"name": "v", "array": True}]},
            {"tensor": "n", "dtype": "int64", "shape": [1], "value": 3},
            {"tensor": "s", "dtype": "string", "value": ["é"]},
        ]
        model = backend.open(place.package(2.0, inputs=declared, output=models.OUTPUTS))
        inputs = models.tensors(rows)
        outputs = model.run({"x": inputs["x"]})
        constants = {"n": np.full((rows, 1), 3, np.int64), "s": np.full((rows, 1), "é", object)}
        same(outputs, models.expected({**inputs, **constants}, 2.0))
        model.close()

    def test_a_rejected_batch_fails_and_the_next_one_succeeds(self, model: Model) -> None:
        refused = models.tensors(4)
        refused["n"][2] = 9
        with pytest.raises(InferenceFailed):
            model.run(refused)
        with pytest.raises(InferenceFailed):
            model.run({name: tensor[2:3] for name, tensor in refused.items()})
        inputs = models.tensors(4)
        same(model.run(inputs), models.expected(inputs, 2.0))

    @pytest.mark.parametrize(
        ("signature", "word"),
        [
            ({"inputs": [{**models.SIGNATURE["inputs"][0], "dtype": "float64"}, *models.SIGNATURE["inputs"][1:]]}, "float64"),
            ({"inputs": [{**models.SIGNATURE["inputs"][0], "fields": ["a"]}, *models.SIGNATURE["inputs"][1:]]}, "x"),
            ({"inputs": [{**models.SIGNATURE["inputs"][0], "shape": [1, 2]}, *models.SIGNATURE["inputs"][1:]]}, r"\(B, 1, 2\)"),
            ({"inputs": models.SIGNATURE["inputs"][:2]}, "inputs"),
            ({"output": {"tensor": "z"}}, "'z'"),
        ],
        ids=["dtype", "width", "shape", "inputs", "output"],
    )
    def test_a_signature_that_does_not_fit_is_refused(
        self, place: Place, backend: Backend, signature: dict[str, Any], word: str
    ) -> None:
        package = place.package(2.0, **signature)
        with pytest.raises(ModelRefused, match=word):
            backend.open(package)

    def test_a_version_answers_while_others_are_loaded_and_unloaded(self, place: Place, backend: Backend, model: Model) -> None:
        errors: list[str] = []
        rounds, stop = [0], threading.Event()

        def load() -> None:
            while not stop.is_set():
                inputs = models.tensors(300, first=rounds[0])
                try:
                    same(model.run(inputs), models.expected(inputs, 2.0))
                except Exception as error:  # noqa: BLE001 - the test asserts that there is none
                    errors.append(repr(error))
                rounds[0] += 1

        thread = threading.Thread(target=load)
        thread.start()
        try:
            for factor in (5.0, 7.0):
                model_of_factor = backend.open(place.package(factor, output=models.OUTPUTS))
                inputs = models.tensors(50)
                same(model_of_factor.run(inputs), models.expected(inputs, factor))
                model_of_factor.close()
        finally:
            stop.set()
            thread.join()
        assert rounds[0] > 1
        assert errors == []

    def test_later_runs_do_not_change_returned_outputs(self, model: Model) -> None:
        inputs = models.tensors(3)
        outputs = model.run(inputs)
        copies = {name: np.array(output) for name, output in outputs.items()}
        model.run(models.tensors(3, first=50))
        same(outputs, copies)
