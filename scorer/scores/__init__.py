"""What an event becomes: a score record or a dead letter."""
