"""The demo's data and models, and the scripts that make them."""
