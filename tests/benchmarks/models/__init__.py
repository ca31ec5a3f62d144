"""Models as exporters write them, unedited, through the product: what it answers beside ONNX Runtime called directly."""
