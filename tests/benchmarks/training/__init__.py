"""Proofs of the room `deploy/training`, whose package stands in deploy/."""

import sys

from tests.support.environment import ROOT

sys.path.insert(0, str(ROOT / "deploy"))
