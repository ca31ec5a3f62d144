"""Backends, which run a model in this process (`onnx/`) or on model servers (`remote/`)."""
