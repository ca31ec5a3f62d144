"""Loading a version whose signature has joined fields: a model that does not serve is closed."""

from typing import Any, cast

import pytest

from model_registry.package import Package
from model_registry.package.signature import Signature
from publisher.errors import Fatal
from scorer.backends.base import ModelRefused
from scorer.decoding.types import FormatMismatch
from scorer.models.loaded_model import LoadedModel, prepare_tables
from scorer.tables.tables import Tables

PACKAGE = cast("Package", object())


class ModelOfTables:
    """A loaded version that is its own model, and the tables that it is prepared with."""

    def __init__(self, error: Exception | None) -> None:
        self.model = self
        self.closed = False
        self._error = error

    def signature(self) -> Signature:
        return Signature((), ())

    def close(self) -> None:
        self.closed = True

    def prepare(self, signature: Signature) -> None:  # noqa: ARG002 - the tables' method has it
        if self._error is not None:
            raise self._error


def loaded_with(version: Any) -> LoadedModel:
    return prepare_tables(lambda _: cast("LoadedModel", version), cast("Tables", version))(PACKAGE)


@pytest.mark.parametrize(
    ("error", "raised"), [(FormatMismatch("no such column"), ModelRefused), (Fatal("the reader has ended"), Fatal)]
)
def test_a_model_whose_tables_cannot_be_prepared_is_closed(error: Exception, raised: type[Exception]) -> None:
    version = ModelOfTables(error)
    with pytest.raises(raised, match=str(error)):
        loaded_with(version)
    assert version.closed


def test_a_prepared_model_stays_open() -> None:
    version = ModelOfTables(None)
    assert cast("Any", loaded_with(version)) is version
    assert not version.closed
