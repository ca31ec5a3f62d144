"""Readers of bytes from untrusted sources: documents, text for terminals, files.

Records, commit metadata, registry documents, responses of servers and files may contain any bytes. The publisher and the
scorer use these readers too, so this package must not depend on models, Kafka or settings.
"""
