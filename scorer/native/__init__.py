"""The native part in C: the work per event that is slow in Python. It contains no policy, and the product works without it.

scanner.c scans JSON, source_positions.c the source positions of score records, and hash.c hashes keys. fetch.c fetches events
from Kafka as columns; produce.c assembles records and produces them. clients.c binds librdkafka and provides the handles of its
clients, and layout.c checks its structures.
"""
