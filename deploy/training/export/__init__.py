"""A trained model as a package: the ONNX model compared with its source, golden examples, and the card."""
