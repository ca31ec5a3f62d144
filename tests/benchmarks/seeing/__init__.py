"""What operators see, proven: dashboards, alerts and runbooks against a real Prometheus, live scorers and relays."""
