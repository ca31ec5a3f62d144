"""Aspired model versions: which one is served, and how the next one becomes ready."""
