"""Export a trained model as a package: the ONNX model, compared with the trained model, golden examples, and the model card."""
