"""A run: its folder, its journal of steps, and the course that they take from a freeze to a promotion."""
