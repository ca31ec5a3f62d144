"""Kafka Streams with a GlobalKTable and ONNX Runtime, as a peer of the scorer."""
