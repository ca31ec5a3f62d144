"""Measure the branch coverage of the product by unit, conformance and integration tests together.

The processes that tests start are measured too. A process that a test kills writes no data, so the figures are a lower limit.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.__main__ import STEPS
from tests.support.environment import ROOT

FOLDERS = ("tests/unit", "tests/conformance", "tests/integration")


def main() -> int:
    """Run the tests, print the coverage by file, and return pytest's exit code."""
    parser = argparse.ArgumentParser(prog="python3 -m tests coverage", description=__doc__)
    parser.add_argument("paths", nargs="*", default=FOLDERS, help=f"the tests to run (default: {' '.join(FOLDERS)})")
    options = parser.parse_args()
    coverage = [sys.executable, "-m", "coverage"]
    with tempfile.TemporaryDirectory(prefix="scorestream-coverage-") as folder:
        environment = {**os.environ, "COVERAGE_FILE": str(Path(folder, "data"))}
        pytest = subprocess.run(
            [*coverage, "run", "-m", *STEPS["pytest"], *options.paths], cwd=ROOT, env=environment, check=False
        )
        subprocess.run([*coverage, "combine", "--quiet"], cwd=ROOT, env=environment, check=True)
        subprocess.run([*coverage, "report"], cwd=ROOT, env=environment, check=True)
    return pytest.returncode


if __name__ == "__main__":
    sys.exit(main())
