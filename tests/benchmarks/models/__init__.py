"""Models as exporters write them, unedited: the product's scores, compared with ONNX Runtime called directly."""
