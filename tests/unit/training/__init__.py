"""Tests of the room deploy/training. Its package is in deploy/, also for the processes that the tests start."""

import os
import sys

from tests.support.environment import ROOT

DEPLOY = str(ROOT / "deploy")
if DEPLOY not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (DEPLOY, os.environ.get("PYTHONPATH"))))
if DEPLOY not in sys.path:
    sys.path.insert(0, DEPLOY)
