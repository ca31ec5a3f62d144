"""Kafka Streams with a GlobalKTable and ONNX Runtime, measured beside the scorer."""
