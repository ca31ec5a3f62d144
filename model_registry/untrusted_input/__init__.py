"""Readers of bytes from untrusted sources: documents, text for terminals, files.

Records, commit metadata, registry documents, responses of servers and files may hold anything. Publisher and scorer use these
readers too, so this room knows nothing of models, Kafka or settings.
"""
