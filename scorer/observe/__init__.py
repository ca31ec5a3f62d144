"""What the scorer tells of itself: metrics, health, logs and status records."""
