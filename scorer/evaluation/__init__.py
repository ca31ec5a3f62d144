"""Measure the quality of model versions: labels, comparisons, metrics and plots."""
