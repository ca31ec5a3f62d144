"""Fixtures of the model registry, whose channel a rollout moves."""

from tests.unit.model_registry.conftest import make_package

__all__ = ["make_package"]
