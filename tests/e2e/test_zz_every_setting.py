"""No setting without a test on the real broker. Runs last: it looks at what the tests of this folder have configured."""

from typing import Any

from pydantic import BaseModel

from scorer.settings import Settings
from tests import models
from tests.e2e.rig import MakeRig, Rig, events, until


def keys(model: type[BaseModel], prefix: str = "") -> set[str]:
    """Dotted names of every setting."""
    found: set[str] = set()
    for name, field in model.model_fields.items():
        kind: Any = field.annotation
        nested = isinstance(kind, type) and issubclass(kind, BaseModel)
        found |= keys(kind, f"{prefix}{name}.") if nested else {prefix + name}
    return found


def test_every_setting_has_been_used(make_rig: MakeRig) -> None:
    rig = make_rig(
        input={"format": "json"},
        output={"format": "json"},
        kafka={"transaction_timeout_ms": 8_000, "extra": {"client.rack": "r1"}},
    )
    rig.push(models.linear_package(rig.folder / "one", 2.0), "1.0.0")
    rig.promote("1.0.0")
    rig.create()
    rig.start().ready()
    rig.emit(events(10))
    until(lambda: rig.answered() == 10, "the scores")
    assert keys(Settings) - Rig.tested_keys == set()
