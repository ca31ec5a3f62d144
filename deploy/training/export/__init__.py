"""A trained model as a package: ONNX held against what was trained, golden examples, and the card."""
