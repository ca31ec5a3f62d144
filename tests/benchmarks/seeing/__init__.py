"""Dashboards, alerts and runbooks against a real Prometheus, live scorers and a live relay."""
