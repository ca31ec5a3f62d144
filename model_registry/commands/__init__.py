"""The commands of `model-registry`, one module for each group.

They parse arguments and print results; the work is done by the other packages of `model_registry`.
"""
