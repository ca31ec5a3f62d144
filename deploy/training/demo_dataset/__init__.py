"""The flights of the demo: features, labels, and the two models trained on them."""
