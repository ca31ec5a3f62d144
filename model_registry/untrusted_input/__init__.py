"""Readers of bytes that others wrote: documents, text for terminals, files.

Records, commit metadata, registry documents, answers of servers and files of people may hold anything. Publisher and scorer
read them here too, so nothing in this room knows of models, Kafka or settings.
"""
