"""The relay's fault campaign: two real clusters, the relay between them, faults on a seeded schedule, and the count."""
