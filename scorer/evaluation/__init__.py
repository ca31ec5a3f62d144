"""Quality of model versions: labels, comparisons, figures and their plots."""
