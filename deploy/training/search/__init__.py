"""The search of parameters, and the training with the best ones."""
