"""The search for the best parameters, and the training of the final model with these parameters."""
