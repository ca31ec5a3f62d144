"""Model versions of a scorer: which version is served, and how the aspired version is loaded."""
