"""The verbs of `model-registry`, a module for each group of them. They parse and print; what they do is done elsewhere."""
