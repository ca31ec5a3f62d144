"""The search for parameters, and the training with the best ones."""
