"""Score events again whose scores are wrong, and publish corrections."""
