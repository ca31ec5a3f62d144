"""The commands of `model-registry`, one module for each group.

The modules parse arguments and print results; the work is done by the other packages of `model_registry`.
"""
