"""Tests of the room deploy/training, whose package stands in deploy/: processes that they start find it there too."""

import os
import sys

from tests.support.environment import ROOT

DEPLOY = str(ROOT / "deploy")
if DEPLOY not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (DEPLOY, os.environ.get("PYTHONPATH"))))
if DEPLOY not in sys.path:
    sys.path.insert(0, DEPLOY)
