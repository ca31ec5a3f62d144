"""Streaming model serving on Kafka: events in, scores out, exactly once."""
