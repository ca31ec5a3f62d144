"""The search for good parameters, and the training with the best of them."""
