"""Suites that every store, session, backend and input format passes, and every new one must pass."""
