"""The two packages that the demo ships: their signatures feed them, golden examples hold, 2.0.0 is the better one."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest

from scorer.demo import flights

VERSIONS = ("1.0.0", "2.0.0")
MAX_BYTES = 300_000


def package(version: str, folder: Path = flights.DATA) -> Path:
    return folder / f"flight-delay-{version}"


def signature(folder: Path) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads((folder / "signature.json").read_text())
    return parsed


def tensors(signature: dict[str, Any], events: list[flights.Event]) -> dict[str, npt.NDArray[Any]]:
    """The inputs as the signature says, read without the product's own code."""
    arrays = {}
    for tensor in signature["inputs"]:
        dtype = {"float32": np.float32, "string": object}[tensor["dtype"]]
        columns = [[value(event, field) for event in events] for field in tensor["fields"]]
        arrays[tensor["tensor"]] = np.array(columns, dtype=dtype).T
    return arrays


def value(event: flights.Event, field: str | dict[str, Any]) -> str | float:
    name = field if isinstance(field, str) else field["name"]
    content = event[name]
    if content is not None:
        return content
    assert isinstance(field, dict), f"{name} is required"
    assert not field["required"]
    return float(field["default"])


def scores(folder: Path, events: list[flights.Event]) -> npt.NDArray[np.float32]:
    tensors_of = signature(folder)
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    (output,) = session.run([tensors_of["output"]["tensor"]], tensors(tensors_of, events))
    late: npt.NDArray[np.float32] = output[:, tensors_of["output"]["index"]]
    return late


def check_golden(folder: Path) -> list[flights.Event]:
    """Asserts that each golden example holds, alone and among the others; the events."""
    golden = [json.loads(line) for line in (folder / "golden.jsonl").read_text().splitlines()]
    events = [line["event"] for line in golden]
    together = scores(folder, events)
    for line, beside_others in zip(golden, together, strict=True):
        assert scores(folder, [line["event"]])[0] == pytest.approx(line["score"], abs=line["tolerance"])
        assert beside_others == pytest.approx(line["score"], abs=line["tolerance"])
    return events


@pytest.mark.parametrize("version", VERSIONS)
def test_a_package_is_small_its_golden_examples_hold_and_only_the_delay_may_be_missing(version: str) -> None:
    folder = package(version)
    assert (folder / "model.onnx").stat().st_size <= MAX_BYTES
    events = check_golden(folder)
    assert len(events) == 6
    assert any(event["dep_delay"] is None for event in events)
    fields = [field for tensor in signature(folder)["inputs"] for field in tensor["fields"]]
    optional = [field for field in fields if not isinstance(field, str)]
    assert optional == [{"name": "dep_delay", "required": False, "default": "nan"}]
    strange: flights.Event = {**events[0], "carrier": "", "origin": "Zürich", "dest": "x" * 1000, "dep_delay": None}
    (score,) = scores(folder, [strange])
    assert 0 < score < 1


def test_the_second_version_takes_fields_that_the_first_does_not() -> None:
    events = list(islice(flights.events(), 2))
    first, second = (tensors(signature(package(version)), events) for version in VERSIONS)
    assert set(first) == set(second) == {"x", "carrier", "origin", "dest"}
    assert (first["x"].shape, second["x"].shape) == ((2, 3), (2, 6))
    assert first["dest"].shape == second["dest"].shape == (2, 1)


def test_the_second_version_is_better_and_the_cards_have_the_measured_values() -> None:
    events, outcomes = list(islice(flights.events(), 56_463)), flights.outcomes()
    measured = {}
    for version in VERSIONS:
        predictions = scores(package(version), events)
        assert np.isfinite(predictions).all()
        pairs = ((float(s), str(e["flight_id"])) for s, e in zip(predictions, events, strict=True))
        measured[version] = flights.auc((score, outcomes[name]) for score, name in pairs if name in outcomes)
        stated = f"| AUC | {measured[version]:.4f} |"
        assert stated in (package(version) / "README.md").read_text()
    assert measured["1.0.0"] > 0.88
    assert measured["2.0.0"] > measured["1.0.0"] + 0.005
