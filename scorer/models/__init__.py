"""Model versions of a scorer: which version is served, and how the next one is loaded."""
