"""A pytest plugin that checks that every setting of the scorer has a test on the real broker.

A run of all tests in tests/integration/scorer and tests/integration/security fails if no test has configured some setting.
Tests run in several processes (pytest-xdist). Each of them reports the settings that its tests have configured to the main
process.
"""

from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel

from scorer.settings import Settings
from tests.integration.scorer.rig import Rig
from tests.support.environment import ROOT

FOLDERS = [ROOT / "tests" / "integration" / name for name in ("scorer", "security")]
WHOLE = pytest.StashKey[bool]()
"""Whether this test run includes all tests of FOLDERS."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[WHOLE] = False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    narrowed = any(
        (config.option.keyword, config.option.markexpr, config.getoption("lf", False), *("::" in path for path in config.args))
    )
    required = {file for folder in FOLDERS for file in folder.glob("test_*.py")}
    config.stash[WHOLE] = not narrowed and {item.path for item in items} >= required


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Report the configured settings to the main process; in the main process, fail if a setting has no test."""
    config = session.config
    if (output := getattr(config, "workeroutput", None)) is not None:
        output["tested_keys"], output["whole"] = sorted(Rig.tested_keys), config.stash[WHOLE]
    elif config.stash[WHOLE] and exitstatus == pytest.ExitCode.OK and untested():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    output = getattr(node, "workeroutput", {})
    Rig.tested_keys |= set(output.get("tested_keys", ()))
    node.config.stash[WHOLE] |= output.get("whole", False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.stash[WHOLE] and untested():
        terminalreporter.section("SETTINGS WITHOUT A TEST")
        terminalreporter.write_line(
            f"no test of integration/scorer and integration/security has configured: {', '.join(sorted(untested()))}"
        )


def untested() -> set[str]:
    return setting_names(Settings) - Rig.tested_keys


def setting_names(model: type[BaseModel], prefix: str = "") -> set[str]:
    """Return the full names of all settings. A section in a map by name is named `NAME`, such as `tables.NAME.topic`."""
    names: set[str] = set()
    for name, field in model.model_fields.items():
        kind: Any = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            names |= setting_names(kind, f"{prefix}{name}.")
            continue
        names.add(prefix + name)
        if (section := named_section(kind)) is not None:
            names |= setting_names(section, f"{prefix}{name}.NAME.")
    return names


def named_section(kind: Any) -> type[BaseModel] | None:
    """Return the section of a setting that is a map from names to sections; None for any other setting."""
    arguments = get_args(kind)
    if get_origin(kind) is dict and isinstance(arguments[1], type) and issubclass(arguments[1], BaseModel):
        return arguments[1]
    return None
