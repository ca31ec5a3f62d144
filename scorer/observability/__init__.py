"""Observability of the scorer: metrics, liveness and status records."""
