"""What every backend does, whatever runs the model. A subclass gives the fixture `place`."""

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
    """Where models of one backend are made and opened; `server` is None where they run in this process."""

    settings: ModelSettings
    folder: Path
    model: Callable[[Path, float], None]
    server: ModelServer | None = None
    made: int = 0

    def backend(self, **settings: Any) -> Backend:
        return select.backend_for(self.settings.model_copy(update=settings))

    def package(self, factor: float, **signature: Any) -> Package:
        self.made += 1
        folder = models.folder(self.folder / f"{self.made}", factor, **signature)
        self.model(folder, factor)
        return models.read(folder, self.folder.name)


def same(found: Tensors, wanted: Tensors) -> None:
    """The outputs that were asked for, value by value, with their dtypes."""
    for name, output in found.items():
        assert output.shape == wanted[name].shape
        assert output.dtype == wanted[name].dtype
        assert output.tolist() == wanted[name].tolist()


class BackendConformance:
    """Shapes, dtypes, strings, order, refusals, errors, versions side by side."""

    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls, place: Place) -> Backend:
        return place.backend()

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls, place: Place, backend: Backend) -> Model:
        """factor 2, every output read."""
        return backend.open(place.package(2.0, output=models.OUTPUTS))

    @pytest.mark.parametrize("rows", [1, 7, 1_500])
    def test_rows_come_back_in_order_with_their_shapes_and_dtypes(self, model: Model, rows: int) -> None:
        given = models.tensors(rows, first=100)
        same(model.run(given), models.expected(given, 2.0))

    def test_only_outputs_that_the_signature_reads_come_back(self, place: Place, backend: Backend) -> None:
        model = backend.open(place.package(3.0))
        assert set(model.run(models.tensors(2))) == {"y"}
        model.close()

    @pytest.mark.parametrize("rows", [1, 600])
    def test_shapes_and_constants_are_fed(self, place: Place, backend: Backend, rows: int) -> None:
        inputs = [
            {"tensor": "x", "dtype": "float32", "shape": [2], "fields": [{"name": "v", "array": True}]},
            {"tensor": "n", "dtype": "int64", "shape": [1], "value": 3},
            {"tensor": "s", "dtype": "string", "value": ["é"]},
        ]
        model = backend.open(place.package(2.0, inputs=inputs, output=models.OUTPUTS))
        given = models.tensors(rows)
        found = model.run({"x": given["x"]})
        constants = {"n": np.full((rows, 1), 3, np.int64), "s": np.full((rows, 1), "é", object)}
        same(found, models.expected({**given, **constants}, 2.0))
        model.close()

    def test_a_batch_that_the_model_refuses_fails_and_the_next_one_does_not(self, model: Model) -> None:
        bad = models.tensors(4)
        bad["n"][2] = 9
        with pytest.raises(InferenceFailed):
            model.run(bad)
        with pytest.raises(InferenceFailed):
            model.run({name: tensor[2:3] for name, tensor in bad.items()})
        given = models.tensors(4)
        same(model.run(given), models.expected(given, 2.0))

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

    def test_versions_answer_side_by_side_while_others_come_and_go(self, place: Place, backend: Backend, model: Model) -> None:
        wrong: list[str] = []
        rounds, done = [0], threading.Event()

        def load() -> None:
            while not done.is_set():
                given = models.tensors(300, first=rounds[0])
                try:
                    same(model.run(given), models.expected(given, 2.0))
                except Exception as error:  # noqa: BLE001 - told by the test
                    wrong.append(repr(error))
                rounds[0] += 1

        thread = threading.Thread(target=load)
        thread.start()
        try:
            for factor in (5.0, 7.0):
                other = backend.open(place.package(factor, output=models.OUTPUTS))
                given = models.tensors(50)
                same(other.run(given), models.expected(given, factor))
                other.close()
        finally:
            done.set()
            thread.join()
        assert rounds[0] > 1
        assert wrong == []

    def test_outputs_are_numpy_arrays_that_stay_as_they_are(self, model: Model) -> None:
        given = models.tensors(3)
        first = model.run(given)
        kept = {name: np.array(output) for name, output in first.items()}
        model.run(models.tensors(3, first=50))
        same(first, kept)
