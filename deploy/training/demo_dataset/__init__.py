"""The flights of the demo: what the source's columns become, when a flight is late, and the two models trained on them."""
