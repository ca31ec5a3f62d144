"""Where model versions are kept: one protocol, one module a kind of store."""
