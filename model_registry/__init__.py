"""Stores model versions as OCI artifacts under tags, and moves channels (tags such as `prod`) between the versions."""
