"""The pages: their reference tables are made from the code, their blocks run, and the targets of their links exist."""

import sys

from tests.support.environment import ROOT

DEPLOY = str(ROOT / "deploy")  # holds the package `training`
if DEPLOY not in sys.path:
    sys.path.insert(0, DEPLOY)
