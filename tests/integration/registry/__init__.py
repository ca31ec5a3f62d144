"""The remote store against a real registry (Debian's docker-registry), and against one that lies."""
