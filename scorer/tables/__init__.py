"""The tables of features by key: look-up, storage of the rows, and reading of their topics."""
