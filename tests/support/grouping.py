"""Groups of tests: one process of pytest-xdist runs a whole group, because its tests share fixtures that start slowly.

The group follows from the path of a test. The marker `xdist_group` is not used: pytest-xdist 3.8 adds it to the ids of tests,
which pytest 9.2 ignores without a warning (pytest-xdist issue 1386).
"""

from xdist.scheduler.loadscope import LoadScopeScheduling

SHARED_SERVERS = {
    "tests/integration/relay/": "relay",
    "tests/integration/security/": "security",
    "tests/integration/training/": "training",
    "tests/integration/backends/": "model servers",
    "tests/integration/scorer/test_model_servers.py": "model servers",
    "tests/integration/scorer/test_formats.py": "schema registry",
    "tests/integration/scorer/test_score_formats.py": "schema registry",
    "tests/integration/scorer/test_rollout_formats.py": "schema registry",
}
"""The group of a test by the start of its path. The tests of a group share servers that no other test needs."""


def group_of(test: str) -> str:
    """Return the group of a test by its id: the group of its shared servers, or else the path of the test's file."""
    file = test.partition("::")[0]
    return next((group for path, group in SHARED_SERVERS.items() if file.startswith(path)), file)


def start_order(test: str) -> int:
    """Return the sort key that starts long groups first: tests with servers, other end-to-end tests, then conformance tests."""
    folders = (*SHARED_SERVERS, "tests/integration/", "tests/packaging/", "tests/conformance/")
    return next((number for number, folder in enumerate(folders) if test.startswith(folder)), len(folders))


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Scheduler of pytest-xdist that gives each group to one process."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
