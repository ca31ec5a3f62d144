"""The programs that tests need from Debian packages: the one list for the tests' marker, the check and `.ci/run`.

This module imports only the standard library, because the check reads it before any package is installed.
"""

from collections.abc import Iterable

PACKAGES = {
    "cc": "build-essential",
    "chromium": "chromium",
    "docker-registry": "docker-registry",
    "go": "golang-go",
    "htpasswd": "apache2-utils",
    "kcat": "kcat",
    "promtool": "prometheus",
    "skopeo": "skopeo",
}
"""The Debian package of each program."""
NOT_RUN_FILE = "SCORESTREAM_TESTS_NOT_RUN"
"""The environment variable that names the file for the list of tests that were not run."""
FAILED_FILE = "SCORESTREAM_TESTS_FAILED"
"""The environment variable that names the file for the ids of tests that failed."""


def install_line(packages: Iterable[str]) -> str:
    return f"apt-get install -y --no-install-recommends {' '.join(sorted(set(packages)))}"
