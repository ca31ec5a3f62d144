"""The fault campaign: real brokers, the installed commands, faults on a seeded schedule, and the count after each round."""
