"""Where a model runs: in this process (`onnx/`) or on model servers (`remote/`)."""
