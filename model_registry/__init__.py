"""Model versions as OCI artifacts under tags, and the channels that move between them."""
