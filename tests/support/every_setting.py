"""Every setting has a test on the real broker: a run of tests/integration/scorer and tests/integration/security together fails
for one that neither has configured.

Tests run in several processes (pytest-xdist): each tells the one that started it what its tests have configured.
"""

from typing import Any

import pytest
from pydantic import BaseModel

from scorer.settings import Settings
from tests.integration.scorer.rig import Rig
from tests.support.environment import ROOT

FOLDERS = [ROOT / "tests" / "integration" / name for name in ("scorer", "security")]
WHOLE = pytest.StashKey[bool]()
"""Whether all tests of these folders are run."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[WHOLE] = False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    narrowed = any(
        (config.option.keyword, config.option.markexpr, config.getoption("lf", False), *("::" in path for path in config.args))
    )
    needed = {file for folder in FOLDERS for file in folder.glob("test_*.py")}
    config.stash[WHOLE] = not narrowed and {item.path for item in items} >= needed


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """In one of several processes: tell the one that started it. There: fail where a setting was left out."""
    config = session.config
    if (told := getattr(config, "workeroutput", None)) is not None:
        told["tested_keys"], told["whole"] = sorted(Rig.tested_keys), config.stash[WHOLE]
    elif config.stash[WHOLE] and exitstatus == pytest.ExitCode.OK and untested():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    told = getattr(node, "workeroutput", {})
    Rig.tested_keys |= set(told.get("tested_keys", ()))
    node.config.stash[WHOLE] |= told.get("whole", False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.stash[WHOLE] and untested():
        terminalreporter.section("SETTINGS WITHOUT A TEST")
        terminalreporter.write_line(
            f"no test of integration/scorer and integration/security has configured: {', '.join(sorted(untested()))}"
        )


def untested() -> set[str]:
    return setting_names(Settings) - Rig.tested_keys


def setting_names(model: type[BaseModel], prefix: str = "") -> set[str]:
    found: set[str] = set()
    for name, field in model.model_fields.items():
        kind: Any = field.annotation
        nested = isinstance(kind, type) and issubclass(kind, BaseModel)
        found |= setting_names(kind, f"{prefix}{name}.") if nested else {prefix + name}
    return found
