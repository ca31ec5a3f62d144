"""The device that runs a model, as the session of ONNX Runtime reports it."""

from types import SimpleNamespace

import pytest

from scorer.backends.onnx.onnx_runtime import PROVIDERS, used_device


class ScriptedSession:
    """A session of `providers` that assigned operators to `assigned`."""

    def __init__(self, providers: list[str], assigned: list[str]) -> None:
        self._providers = [PROVIDERS[device] for device in providers]
        self._assigned = [SimpleNamespace(ep_name=PROVIDERS[device]) for device in assigned]

    def get_providers(self) -> list[str]:
        return self._providers

    def get_provider_graph_assignment_info(self) -> list[SimpleNamespace]:
        return self._assigned


@pytest.mark.parametrize(
    ("configured", "assigned", "used"),
    [
        ("cuda", ["cpu", "cuda"], "cuda"),
        ("cuda", ["cpu"], "cpu"),
        ("tensorrt", ["cpu", "cuda"], "cuda"),
        ("tensorrt", ["tensorrt"], "tensorrt"),
        ("cuda", [], "cuda"),
    ],
)
def test_the_device_is_the_first_one_that_runs_an_operator(configured: str, assigned: list[str], used: str) -> None:
    providers = {"cuda": ["cuda", "cpu"], "tensorrt": ["tensorrt", "cuda", "cpu"]}[configured]
    assert used_device(ScriptedSession(providers, assigned), configured) == used


def test_an_earlier_onnx_runtime_reports_its_first_provider() -> None:
    session = SimpleNamespace(get_providers=lambda: [PROVIDERS["cuda"], PROVIDERS["cpu"]])
    assert used_device(session, "cuda") == "cuda"
