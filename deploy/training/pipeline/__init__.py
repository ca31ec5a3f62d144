"""A training run: its folder, its journal of steps, and the steps from the freeze of a snapshot to a promotion."""
