"""What the scorer tells of itself: metrics, progress and status records."""
