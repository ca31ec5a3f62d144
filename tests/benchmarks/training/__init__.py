"""Benchmarks of the training package, which lies in `deploy/`."""

import sys

from tests.support.environment import ROOT

sys.path.insert(0, str(ROOT / "deploy"))
