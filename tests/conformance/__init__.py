"""Suites that every store, session, backend and input format passes, so that a new one is held to the same."""
